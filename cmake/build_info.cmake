# Run at every build (cmake -P): writes build_info.cpp when the revision or a version changed. SOURCE_DIR, TEMPLATE and
# OUTPUT come from TriremeBuildInfo.cmake, as do the TRIREME_ values but the revision.
set(TRIREME_GIT_REVISION unknown)
find_program(GIT git)
# A tarball unpacked inside some other repository must not name that one's revision.
if(GIT AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT} describe --always --dirty --abbrev=12 --exclude=* WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE revision RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed AND revision)
    set(TRIREME_GIT_REVISION ${revision})
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
