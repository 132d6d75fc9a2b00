# A room, src/WING/ROOM, is a namespace and a static library. Its LINKS name the lower rooms that it may include;
# tests/check_layers.py compares the includes with the wings and floors. An include begins with the room: "ops/rotary.hpp".
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
# Messages and debug information name files from the top of the source tree, wherever that is. So clones can share a compiler cache.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>)
# For the whole tree and first of all options, so that a target can take a check back.
if(TRIREME_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TRIREME_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
  # That check asks the system through a pipe, and where no descriptor is left takes any object for damaged.
  if(TRIREME_SANITIZE MATCHES undefined)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr>)
  endif()
endif()

# All *.cpp below the folder, without those that match EXCEPT, and SOURCES.
function(trireme_room name)
  cmake_parse_arguments(ROOM "" "EXCEPT" "SOURCES;LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} *.cpp)
  if(ROOM_EXCEPT)
    list(FILTER sources EXCLUDE REGEX ${ROOM_EXCEPT})
  endif()
  add_library(trireme_${name} STATIC ${sources} ${ROOM_SOURCES})
  target_link_libraries(trireme_${name} PUBLIC trireme_flags ${ROOM_LINKS})
  # Under sanitizers all but the kernels compile in two thirds of the time at a level less.
  if(TRIREME_SANITIZE AND NOT name STREQUAL "ops")
    target_compile_options(trireme_${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  add_library(trireme::${name} ALIAS trireme_${name})
endfunction()
