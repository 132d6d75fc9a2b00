# trireme_test(NAME SOURCES … ROOMS … [RANKS 1 2 3 4] [TIMEOUT SECONDS] [LABELS …] [GPU [EMULATED_WITHOUT PATTERN …]]
#   [SANITIZED_WITHOUT PATTERN …] [COST SECONDS])
#
# Builds test_NAME from GoogleTest sources. Without RANKS, it adds one ctest, NAME, that runs one process without MPI. With RANKS, the
# executable gets a main() that initializes MPI, and one ctest NAME.npN per rank count starts it under mpirun. TIMEOUT is for tests that
# hang: at least ten times the duration on a quiet machine with sanitizers. Labels: `unit` or `mpi`, plus LABELS; `threads` marks tests for
# the thread sanitizer. GPU: some cases need a GPU. If GPUs are emulated, each process gets one, ranks run their streams in reverse order
# (so that missing synchronization shows), and the slow cases EMULATED_WITHOUT are left out. With sanitizers, the cases SANITIZED_WITHOUT
# are left out; they repeat what other cases cover. Tests with a higher COST start earlier. Targets: `unit_tests` builds the unit tests and
# what they need, trireme included; `mpi_tests` the others; `core_tests` the tests with the label `core`: rooms that allocate memory,
# communicate or compute. Every test that starts ranks uses the launcher from here: MPIEXEC_EXECUTABLE with TRIREME_MPIEXEC_FLAGS.
if(NOT DEFINED CACHE{TRIREME_MPIEXEC_FLAGS})
  execute_process(COMMAND bash ${PROJECT_SOURCE_DIR}/jobs/mpirun.sh --flags ${MPIEXEC_EXECUTABLE}
    OUTPUT_VARIABLE _flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
set(TRIREME_MPIEXEC_FLAGS "${_flags}" CACHE STRING "The launcher's options: more ranks than cores, none bound to a core")
separate_arguments(_flags UNIX_COMMAND "${TRIREME_MPIEXEC_FLAGS}")
set(TRIREME_MPIRUN ${MPIEXEC_EXECUTABLE} ${_flags} ${MPIEXEC_NUMPROC_FLAG})
# Open MPI's PSM modules measure the clock for 0.1 s each when a rank starts, even without their hardware.
set(TRIREME_TEST_ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMP_NUM_THREADS=1;HWLOC_COMPONENTS=-gl"
    "OMPI_MCA_mtl=^ofi,psm,psm2" "OMPI_MCA_mpi_yield_when_idle=1" "OMPI_MCA_rmaps_base_oversubscribe=1" "MPIR_CVAR_POLLS_BEFORE_YIELD=1"
    "TRIREME_MPIRUN=${MPIEXEC_EXECUTABLE}" "TRIREME_MPIRUN_FLAGS=${TRIREME_MPIEXEC_FLAGS} ${MPIEXEC_NUMPROC_FLAG}")
# Open MPI's plugins are unloaded before the leak check, so their leaks can be recognized only by a complete stack trace.
if(TRIREME_SANITIZE MATCHES address)
  list(APPEND TRIREME_TEST_ENVIRONMENT "ASAN_OPTIONS=fast_unwind_on_malloc=0")
endif()
add_custom_target(unit_tests DEPENDS trireme)
add_custom_target(mpi_tests)
add_custom_target(core_tests)

function(trireme_test name)
  cmake_parse_arguments(TEST "GPU" "TIMEOUT;COST" "SOURCES;ROOMS;RANKS;LABELS;EMULATED_WITHOUT;SANITIZED_WITHOUT" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 900)
  endif()
  set(environment "")
  set(without "")
  if(TEST_GPU)
    set(environment "TRIREME_EMULATED_GPUS=1")
    if(TEST_RANKS)
      list(APPEND environment "TRIREME_EMULATED_SEED=1")
    endif()
    if(TRIREME_CUDA STREQUAL "EMULATED")
      list(APPEND without ${TEST_EMULATED_WITHOUT})
    endif()
  endif()
  if(TRIREME_SANITIZE)
    list(APPEND without ${TEST_SANITIZED_WITHOUT})
  endif()
  if(without)
    list(JOIN without ":" patterns)
    list(APPEND environment "GTEST_FILTER=*-${patterns}")
  endif()
  add_executable(test_${name} ${TEST_SOURCES})
  # The rooms under test are optimized. For the tests themselves, a unity build halves the compile time, -O1 takes a third off and -Og
  # another fifth. The tests labelled `core` keep -O1, because they compute references in loops. Omitting the checks of memory accesses that
  # the address sanitizer makes too saves another third with sanitizers.
  set_target_properties(test_${name} PROPERTIES UNITY_BUILD ON)
  if("core" IN_LIST TEST_LABELS)
    target_compile_options(test_${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  else()
    target_compile_options(test_${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-Og>)
  endif()
  if(TRIREME_SANITIZE MATCHES undefined)
    target_compile_options(test_${name} PRIVATE -fno-sanitize=null,alignment,object-size)
  endif()
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(test_${name} PRIVATE ${TEST_ROOMS} trireme_flags GTest::gtest GTest::gmock)
  if("core" IN_LIST TEST_LABELS)
    add_dependencies(core_tests test_${name})
  endif()
  if(TEST_RANKS)
    target_sources(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp)
    target_link_libraries(test_${name} PRIVATE MPI::MPI_C)
    add_dependencies(mpi_tests test_${name})
    foreach(ranks IN LISTS TEST_RANKS)
      add_test(NAME ${name}.np${ranks} COMMAND ${TRIREME_MPIRUN} ${ranks} $<TARGET_FILE:test_${name}>)
      set_tests_properties(${name}.np${ranks} PROPERTIES TIMEOUT ${TEST_TIMEOUT} PROCESSORS 2 LABELS "mpi;${TEST_LABELS}"
        ENVIRONMENT "${TRIREME_TEST_ENVIRONMENT};${environment}")
    endforeach()
  else()
    target_link_libraries(test_${name} PRIVATE GTest::gtest_main)
    add_dependencies(unit_tests test_${name})
    add_test(NAME ${name} COMMAND test_${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS "unit;${TEST_LABELS}" ENVIRONMENT "${environment}")
    if(TEST_COST)
      set_property(TEST ${name} PROPERTY COST ${TEST_COST})
    endif()
  endif()
endfunction()

# trireme_test_in_order(NAME SUFFIX SEED QUEUE)
#
# If the GPU is emulated, runs the GPU cases of NAME again as NAME.SUFFIX. SEED chooses the order in which the streams are executed. With
# QUEUE `lazy`, work is executed only when a thread waits for it.
function(trireme_test_in_order name suffix seed queue)
  if(NOT TRIREME_CUDA STREQUAL "EMULATED" OR NOT TRIREME_HAVE_CUDA)
    return()
  endif()
  add_test(NAME ${name}.${suffix} COMMAND test_${name})
  set_tests_properties(${name}.${suffix} PROPERTIES TIMEOUT 900 LABELS "unit;core" ENVIRONMENT
    "TRIREME_EMULATED_GPUS=1;TRIREME_EMULATED_SEED=${seed};TRIREME_EMULATED_QUEUE=${queue};GTEST_FILTER=*Gpu*")
endfunction()
