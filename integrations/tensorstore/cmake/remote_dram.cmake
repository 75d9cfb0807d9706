# add_remote_dram(NAME TARGET...): the driver as an object library, so that its registrations are linked wherever it
# is. TARGETs bring TensorStore's headers; libpenstock is found by pkg-config.
find_package(PkgConfig REQUIRED)
pkg_check_modules(PENSTOCK REQUIRED IMPORTED_TARGET penstock)

set(REMOTE_DRAM_ROOT ${CMAKE_CURRENT_LIST_DIR}/..)
set(REMOTE_DRAM_FOLDER ${REMOTE_DRAM_ROOT}/tensorstore/kvstore/remote_dram)
set(REMOTE_DRAM_SOURCES address buffers connection read registry remote_dram_kvstore resource server spec status
  transaction write)
list(TRANSFORM REMOTE_DRAM_SOURCES PREPEND ${REMOTE_DRAM_FOLDER}/)
list(TRANSFORM REMOTE_DRAM_SOURCES APPEND .cc)

function(add_remote_dram name)
  add_library(${name} OBJECT ${REMOTE_DRAM_SOURCES})
  target_include_directories(${name} PUBLIC ${REMOTE_DRAM_ROOT})
  target_link_libraries(${name} PUBLIC ${ARGN} PkgConfig::PENSTOCK)
endfunction()
