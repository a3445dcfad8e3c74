// An array stored in one or many files: its layout, and how its rows are read.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>

#include "bindings/python/parallel.h"
#include "runtime/file_reads.h"

namespace pinfeed::bindings {

using runtime::FileReads;

// `array` has the dtype, shape and strides. It is the mapping of a file that the owner has opened;
// for files opened by their paths, it has no memory.
struct FileArray {
  pybind11::object array;
  runtime::FileRows rows;
};

// Calls write(begin, end) for ranges of `count` samples when they are in memory. `reads`: null if
// all are in memory. Waits for files without the GIL.
template <class Write>
void write_when_read(FileReads* reads, std::size_t count, std::size_t threads, const Write& write) {
  if (reads == nullptr) return write(std::size_t{0}, count);
  for (std::size_t i = 0; i < reads->chunks(); ++i) {
    if (!reads->is_ready()) {
      const pybind11::gil_scoped_release unlocked;
      reads->read_chunk(i, threads);
    }
    const auto [begin, end] = reads->chunk(i);
    write(begin, end);
  }
}

// run_rows over samples that may have to be read first.
template <class Body>
void run_samples(FileReads* reads, std::size_t count, std::size_t sample_bytes, std::size_t threads,
                 const Body& body) {
  write_when_read(reads, count, threads, [&](std::size_t first, std::size_t last) {
    run_rows(last - first, sample_bytes, threads,
             [&](std::size_t begin, std::size_t end) { body(first + begin, first + end); });
  });
}

}  // namespace pinfeed::bindings
