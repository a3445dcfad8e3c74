// An array whose memory is a file, or many: what it looks like, and how its rows are read.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>

#include "bindings/python/parallel.h"
#include "runtime/file_reads.h"

namespace pinfeed::bindings {

using runtime::FileReads;

// `array` tells dtype, shape and strides. Of one file: where its memory is mapped. Of many: no
// memory at all.
struct FileArray {
  pybind11::object array;
  runtime::FileRows rows;
};

// Calls write(begin, end) for `count` samples, each when it is there. `reads`: null if all are in
// memory. It gets the GIL, which is let go of while files are waited for.
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
