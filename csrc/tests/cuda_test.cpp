// The work of the CUDA kernels, thread by thread on the CPU: their results and memory accesses.
// Speed, races and launches are not tested here, because they need a device.
#include "tests/check.h"

void cuda_parts_tests();
void cuda_images_tests();
void cuda_jagged_tests();

int main() {
  cuda_parts_tests();
  cuda_images_tests();
  cuda_jagged_tests();
  return pinfeed::tests::summary();
}
