# A room, src/WING/ROOM, is a namespace and a static library. Its LINKS are the lower rooms that it may include, and
# tests/check_layers.py checks the includes against the wings and floors. An include starts with the room: "ops/rotary.hpp".
add_library(trireme_flags INTERFACE)
foreach(wing foundation compute parallel data records training apps)
  target_include_directories(trireme_flags INTERFACE ${PROJECT_SOURCE_DIR}/src/${wing})
endforeach()
target_compile_options(trireme_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TRIREME_WERROR}>>:-Werror>)
target_compile_definitions(trireme_flags INTERFACE $<$<BOOL:${TRIREME_AUDIT}>:TRIREME_AUDIT=1>)
if(NOT TRIREME_X86_LEVEL MATCHES "^[234]$")
  message(FATAL_ERROR "TRIREME_X86_LEVEL=${TRIREME_X86_LEVEL} is neither 4, 3 nor 2")
elseif(TRIREME_X86_LEVEL LESS 4)
  target_compile_definitions(trireme_flags INTERFACE TRIREME_X86_LEVEL=${TRIREME_X86_LEVEL})
endif()
# Messages and debug information use paths relative to the source tree, so that clones in different folders can share a compiler cache.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)
# These options apply to the whole tree and come first, so that a target can disable a check.
if(TRIREME_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TRIREME_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
  # The vptr check uses a pipe to test memory. If no file descriptor is left, it reports valid objects as damaged.
  if(TRIREME_SANITIZE MATCHES undefined)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr>)
  endif()
endif()

# A room consists of all *.cpp files below its folder, except those that match EXCEPT, and of SOURCES. SELDOM: the room has no loops over
# elements in a step, so -O1 is fast enough and reduces the compile time by a quarter.
function(trireme_room name)
  cmake_parse_arguments(ROOM "SELDOM" "EXCEPT" "SOURCES;LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  if(ROOM_EXCEPT)
    list(FILTER sources EXCLUDE REGEX ${ROOM_EXCEPT})
  endif()
  add_library(trireme_${name} STATIC ${sources} ${ROOM_SOURCES})
  target_link_libraries(trireme_${name} PUBLIC trireme_flags ${ROOM_LINKS})
  # With sanitizers, -O1 reduces the compile time of all rooms but the kernels by a third.
  if(ROOM_SELDOM OR (TRIREME_SANITIZE AND NOT name STREQUAL "ops"))
    target_compile_options(trireme_${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  add_library(trireme::${name} ALIAS trireme_${name})
endfunction()
