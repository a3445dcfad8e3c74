# Sets PINFEED_HAS_CUDA, and enables the language if so. CMake looks for nvcc in $CUDACXX,
# then in PATH.
string(TOUPPER "${PINFEED_CUDA}" wanted)
if(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PINFEED_CUDA must be AUTO, ON or OFF, got ${PINFEED_CUDA}")
endif()
set(PINFEED_HAS_CUDA OFF)
if(NOT wanted STREQUAL "OFF")
  # Machine code per generation of instructions. Code for 8.0 also runs on 8.6 and 8.9, whose new
  # instructions don't help memory-bound kernels. The PTX of 9.0 covers later GPUs.
  set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;90" CACHE STRING "GPUs to compile the kernels for")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.4)
      set(PINFEED_HAS_CUDA ON)
    elseif(wanted STREQUAL "ON")
      message(FATAL_ERROR "PINFEED_CUDA=ON needs nvcc 12.4 or later for C++20, got "
        "${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER}); set CUDACXX to another one")
    endif()
  elseif(wanted STREQUAL "ON")
    message(FATAL_ERROR "PINFEED_CUDA=ON needs nvcc: none was found that works; "
      "put it on the PATH, name it in CUDACXX, or set PINFEED_CUDA=OFF")
  endif()
endif()
message(STATUS "CUDA kernels: ${PINFEED_HAS_CUDA}")
