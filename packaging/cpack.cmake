# Debian packages by CPack: `make deb`, or cpack in a build folder configured with the prefix /usr.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME berth)
set(CPACK_PACKAGE_VENDOR "Berth")
set(CPACK_PACKAGE_CONTACT "Berth maintainers <maintainers@berth.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL berth lib dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
# Files go where the configured prefix says, /etc included, below a folder of CPack's.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(deb ${PROJECT_SOURCE_DIR}/packaging/deb)
set(CPACK_DEBIAN_BERTH_PACKAGE_NAME berth)
set(CPACK_DEBIAN_BERTH_PACKAGE_SECTION graphics)
# opened at run time, so that nothing finds out by itself
set(opened "libcurl4 | libcurl4t64 | libcurl3-gnutls")
if(berth_media) # the versions whose headers we saw: libavformat59
    foreach(x avformat avcodec avutil swscale swresample)
        string(REGEX MATCH "^[0-9]+" major "${FFMPEG_lib${x}_VERSION}")
        string(APPEND opened ", lib${x}${major}")
    endforeach()
endif()
set(CPACK_DEBIAN_BERTH_PACKAGE_DEPENDS "${opened}")
set(CPACK_DEBIAN_BERTH_PACKAGE_RECOMMENDS "ca-certificates")
set(CPACK_DEBIAN_BERTH_PACKAGE_SUGGESTS "libcuda1, bash-completion")
set(CPACK_DEBIAN_BERTH_PACKAGE_CONTROL_EXTRA ${deb}/conffiles ${deb}/postinst ${deb}/prerm ${deb}/postrm)
set(CPACK_COMPONENT_BERTH_DESCRIPTION "ComfyUI workflows, run natively
Runs workflows made for ComfyUI without Python, speaks its HTTP and
WebSocket API, and decides where every block of every model lives: on a
graphics card, on another one, in the memory of the host.

A small model that draws coloured shapes comes along: berth serve --demo.
The system service is installed and not enabled, since a server is nothing
to find running by surprise: systemctl enable --now berth.")
set(CPACK_DEBIAN_LIB_PACKAGE_NAME libberth0)
set(CPACK_DEBIAN_LIB_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIB_PACKAGE_CONTROL_EXTRA ${deb}/triggers)
set(CPACK_COMPONENT_LIB_DESCRIPTION "ComfyUI workflows and placement of model weights, shared library
The engine of berth as a library: runs workflows inside another program, and
decides which weights live on which device, and who may push whom out.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libberth-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libberth0 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEV_DESCRIPTION "ComfyUI workflows and placement of model weights, header and link name
The engine of berth as a library: what a program needs to be compiled with
it. pkg-config knows it as berth.")

# What a Debian package has beside the program: its history and its licence, in every package's folder.
if(berth_debian)
    set(changelog ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz)
    add_custom_command(OUTPUT ${changelog} COMMAND gzip -9nc ${deb}/changelog > ${changelog}
        DEPENDS packaging/deb/changelog VERBATIM)
    add_custom_target(berth_changelog ALL DEPENDS ${changelog})
    foreach(pair berth:berth lib:libberth0 dev:libberth-dev)
        string(REPLACE ":" ";" pair ${pair})
        list(GET pair 0 component)
        list(GET pair 1 package)
        install(FILES ${changelog} ${deb}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
    endforeach()
endif()
include(CPack)
