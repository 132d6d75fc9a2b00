# Runs at every build (cmake -P) and writes build_info.cpp when the revision or a version has changed. SOURCE_DIR, TEMPLATE, OUTPUT
# and the TRIREME_ values, except the revision, come from TriremeBuildInfo.cmake.
set(TRIREME_GIT_REVISION unknown)
find_program(GIT git)
# A tarball unpacked inside another repository must not report that repository's revision.
if(GIT AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT} describe --always --dirty --abbrev=12 --exclude=* WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE revision RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed AND revision)
    set(TRIREME_GIT_REVISION ${revision})
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
