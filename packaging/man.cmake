# cmake -D BERTH=berth -D IN=berth.1.in -D OUT=berth.1 -D VERSION=0.1.0 -D DATE=2025-01-01 -P man.cmake
# The man page: prose from IN, commands and options from the program itself.
cmake_minimum_required(VERSION 3.22)
execute_process(COMMAND ${BERTH} help --man OUTPUT_VARIABLE commands RESULT_VARIABLE failed)
if(failed OR NOT commands)
    message(FATAL_ERROR "${BERTH} help --man: ${failed}")
endif()
file(READ ${IN} page)
string(REPLACE "@VERSION@" "${VERSION}" page "${page}")
string(REPLACE "@DATE@" "${DATE}" page "${page}")
string(REPLACE "\n@COMMANDS@\n" "\n${commands}" page "${page}")
file(WRITE ${OUT} "${page}")
