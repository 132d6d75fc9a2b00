# trireme::build_info implements src/foundation/base/build_info.hpp with a source generated at every build. It is a separate library, so
# a new revision relinks only the programs that report it.
set(TRIREME_MPI_DESCRIPTION "MPI ${MPI_C_VERSION}")
if(MPI_C_LIBRARY_VERSION_STRING)
  string(REGEX REPLACE "[,\n].*" "" _library "${MPI_C_LIBRARY_VERSION_STRING}")
  set(TRIREME_MPI_DESCRIPTION "${_library} (MPI ${MPI_C_VERSION})")
endif()
set(_generated ${PROJECT_BINARY_DIR}/generated/build_info.cpp)
add_custom_target(trireme_write_build_info
  COMMAND ${CMAKE_COMMAND}
    -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DTEMPLATE=${PROJECT_SOURCE_DIR}/cmake/build_info.cpp.in -DOUTPUT=${_generated}
    -DTRIREME_VERSION=${PROJECT_VERSION} "-DTRIREME_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    "-DTRIREME_BUILD_TYPE=${CMAKE_BUILD_TYPE}" "-DTRIREME_MPI=${TRIREME_MPI_DESCRIPTION}" -DTRIREME_HDF5=${HDF5_VERSION}
    "-DTRIREME_CUDA=${TRIREME_CUDA_DESCRIPTION}" "-DTRIREME_CUDNN=${TRIREME_CUDNN_DESCRIPTION}"
    "-DTRIREME_NCCL=${TRIREME_NCCL_DESCRIPTION}" -DTRIREME_HAS_CUDA=$<IF:$<BOOL:${TRIREME_HAVE_CUDA}>,true,false> -P ${PROJECT_SOURCE_DIR}/cmake/build_info.cmake
  BYPRODUCTS ${_generated}
  COMMENT "" VERBATIM)
add_library(trireme_build_info STATIC ${_generated})
add_dependencies(trireme_build_info trireme_write_build_info)
target_link_libraries(trireme_build_info PUBLIC trireme_flags)
add_library(trireme::build_info ALIAS trireme_build_info)
