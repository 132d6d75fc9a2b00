# cmake --install build --prefix DIR: bin/, share/trireme/ (decks, job scripts, site set-ups, postproc) and a modulefile in
# share/modulefiles/. No file contains the prefix, so the tree can be moved. The libraries are searched for where they were at build time.
include(GNUInstallDirs)
set(share ${CMAKE_INSTALL_DATADIR}/trireme)
set_target_properties(trireme PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS postproc/trireme-postproc DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY input DESTINATION ${share})
install(DIRECTORY postproc/trireme_postproc DESTINATION ${share}/postproc PATTERN __pycache__ EXCLUDE)
install(DIRECTORY modules DESTINATION ${share} USE_SOURCE_PERMISSIONS PATTERN *.in EXCLUDE)
install(PROGRAMS jobs/mpirun.sh jobs/train.sbatch jobs/train.pbs jobs/train.lsf jobs/train.flux jobs/train.k8s.yaml DESTINATION ${share}/jobs)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR}) # below README.md, so that links work
configure_file(${PROJECT_SOURCE_DIR}/modules/modulefile.in ${PROJECT_BINARY_DIR}/generated/modulefile @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/modulefile DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/trireme
  RENAME ${PROJECT_VERSION})
