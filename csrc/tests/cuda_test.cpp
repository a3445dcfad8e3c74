// The work of the CUDA kernels, thread by thread on the CPU: what they compute and which memory
// they touch. What only a device can tell (speed, races, the launch itself) is not tested here.
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
