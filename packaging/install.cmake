# What `cmake --install` puts where. Three components, which are the three Debian packages too:
# berth (the program and all it needs), lib (libberth.so.0) and dev (header, link name, berth.pc).
include(GNUInstallDirs)
# A package for Debian, and not an administrator's own installation beside them.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
    set(berth_debian 1)
endif()
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(tools/berth.pc.in berth.pc @ONLY)
install(TARGETS berth_shared LIBRARY COMPONENT lib NAMELINK_COMPONENT dev)
install(FILES include/berth/berth.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/berth COMPONENT dev)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/berth.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
if(NOT TARGET berth_app)
    return()
endif()
install(TARGETS berth_app COMPONENT berth)

# The man page and the completions: printed by the program, so they say what it does. A program for
# another machine cannot be asked; its package goes without.
if(NOT CMAKE_CROSSCOMPILING)
    set(pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
    file(MAKE_DIRECTORY ${pages})
    # When this version was released, from the package's changelog: "Sun, 15 Nov 2026" -> 2026-11-15.
    file(STRINGS packaging/deb/changelog released REGEX "^ -- .*  [A-Z][a-z][a-z], " LIMIT_COUNT 1)
    string(REGEX MATCH "([0-9]+) ([A-Z][a-z][a-z]) ([0-9][0-9][0-9][0-9])" released "${released}")
    set(day ${CMAKE_MATCH_1})
    set(year ${CMAKE_MATCH_3})
    set(months Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec)
    list(FIND months "${CMAKE_MATCH_2}" month)
    math(EXPR month "${month} + 101") # 101..112: two digits behind the first
    string(SUBSTRING ${month} 1 2 month)

    add_custom_command(OUTPUT ${pages}/berth.1
        COMMAND ${CMAKE_COMMAND} -D BERTH=$<TARGET_FILE:berth_app> -D IN=${PROJECT_SOURCE_DIR}/docs/man/berth.1.in
            -D OUT=${pages}/berth.1 -D VERSION=${PROJECT_VERSION} -D DATE=${year}-${month}-${day}
            -P ${PROJECT_SOURCE_DIR}/packaging/man.cmake
        DEPENDS berth_app docs/man/berth.1.in packaging/man.cmake COMMENT "berth.1" VERBATIM)
    set(printed ${pages}/berth.1)
    foreach(shell bash fish zsh)
        add_custom_command(OUTPUT ${pages}/berth.${shell}
            COMMAND berth_app completion ${shell} > ${pages}/berth.${shell}
            DEPENDS berth_app COMMENT "completion for ${shell}" VERBATIM)
        list(APPEND printed ${pages}/berth.${shell})
    endforeach()
    set(page berth.1)
    if(berth_debian) # its pages are compressed, always the same way
        set(page berth.1.gz)
        add_custom_command(OUTPUT ${pages}/${page} COMMAND gzip -9nc ${pages}/berth.1 > ${pages}/${page}
            DEPENDS ${pages}/berth.1 VERBATIM)
        list(APPEND printed ${pages}/${page})
    endif()
    add_custom_target(berth_pages ALL DEPENDS ${printed})
    install(FILES ${pages}/${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT berth)
    install(FILES ${pages}/berth.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME berth COMPONENT berth)
    install(FILES ${pages}/berth.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT berth)
    # Debian's zsh looks for what packages bring beside what the administrator does.
    set(zsh site-functions)
    if(berth_debian)
        set(zsh vendor-completions)
    endif()
    install(FILES ${pages}/berth.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${zsh} RENAME _berth COMPONENT berth)
endif()

# What a first run needs: the demo model, workflows, something to read.
set(share ${CMAKE_INSTALL_DATADIR}/berth)
install(DIRECTORY examples/workflows DESTINATION ${share} COMPONENT berth FILES_MATCHING PATTERN *.json)
if(EXISTS ${PROJECT_SOURCE_DIR}/assets/demo/berth-demo.safetensors)
    install(FILES assets/demo/berth-demo.safetensors assets/demo/tokenizer.json assets/demo/README.md assets/demo/LICENSE
        DESTINATION ${share}/demo COMPONENT berth)
endif()
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT berth)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT berth PATTERN man EXCLUDE)
if(NOT berth_debian) # there, the copyright file has it
    install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT berth)
endif()

# The unit names the program by its path, which is known when it is installed: --prefix may differ
# from the one that was configured, and two may be installed from one build at a time. Its options are
# the administrator's, so /etc/default/berth comes with a package only, where dpkg asks before it
# replaces one: EXCLUDE_FROM_ALL leaves it out of `make install`, and CPack installs by component.
if(BERTH_SERVER)
    install(CODE "
        set(bindir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
        set(unit \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/berth.service\")
        message(STATUS \"Installing: \$ENV{DESTDIR}\${unit}\")
        configure_file(\"${PROJECT_SOURCE_DIR}/packaging/berth.service.in\" \"\$ENV{DESTDIR}\${unit}\" @ONLY)
        list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${unit}\")
    " COMPONENT berth)
    install(CODE "
        if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
            file(INSTALL \"${PROJECT_SOURCE_DIR}/packaging/berth.default\" DESTINATION /etc/default RENAME berth)
        endif()
    " COMPONENT berth EXCLUDE_FROM_ALL)
endif()

include(packaging/cpack.cmake)
