// What one batch needs of an array that lies in files, and how it gets there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/part_ends.h"
#include "runtime/row_files.h"

namespace pinfeed::runtime {

// An array in a file, or in many. In one: its first item is at byte offsets[0]. In many: part i
// holds its rows one right after the other, from its byte offsets[i] on.
struct FileRows {
  std::shared_ptr<RowFiles> files;
  std::vector<std::int64_t> offsets;
  PartEnds ends;                // of many
  std::int64_t first_size = 0;  // of one: bytes of the file when this was made
};

// What a sample touches: from its lowest byte, relative to the first item, to past the highest.
struct SampleBytes {
  SampleBytes(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
              std::size_t item_bytes);

  // Whether it is worth reading as a whole; the extent of one that lies in pieces may be the file.
  bool is_dense() const {
    constexpr std::int64_t kMostTimes = 4, kAlways = 64 << 10;
    return end - begin <= std::max(kMostTimes * used, kAlways);
  }

  std::int64_t begin = 0;
  std::int64_t end;
  std::int64_t used;
};

// Rows that can't be read, in words.
class FileError : public std::runtime_error {
 public:
  FileError(const std::string& message, int number)
      : std::runtime_error(message), error_number(number) {}

  int error_number;  // errno, or 0 for a file that changed
};

// The samples of one batch in files. First they are added; then find_mapped() and read_to(), or
// plan() and the chunks. All that waits for files throws FileError.
class FileReads {
 public:
  // `memory`: where the array's first item is, if it is mapped. `row_stride`: in bytes.
  FileReads(const FileRows& rows, const std::byte* memory, std::int64_t row_stride)
      : file_(rows), memory_(memory), row_stride_(row_stride) {}

  void reserve(std::size_t samples);

  // The next sample: row `row` of the array (of a ragged one, sequence `row`), whose first item is
  // at `data` if it is mapped.
  void add(std::int64_t row, const std::byte* data, const SampleBytes& bytes);

  // Instead: all samples, which touch the same bytes of their rows.
  void add_rows(std::span<const std::int64_t> rows, const SampleBytes& bytes);

  // Whether that is likely to take microseconds: nothing to be waited for.
  bool seems_hot() const { return file_.files->seems_hot(); }

  // Whether all samples are looked at where they are mapped; then data() says where. Before that it
  // throws if a file of many is not what it was.
  bool find_mapped();

  // Reads the samples, which must have no gaps, to `out`, one after the other.
  void read_to(std::byte* out, std::size_t threads);

  // Says where each sample will be when its turn comes: in memory, mapped or read. `whole`: all of
  // them are there from now on.
  void plan(bool whole, std::size_t threads);
  const std::byte* data(std::size_t sample) const { return data_[sample]; }

  // The turns: the samples from one number to another. What is ready needs no read_chunk().
  bool is_ready() const { return is_mapped_ || is_read_; }
  bool is_mapped() const { return is_mapped_; }
  std::size_t chunks() const { return chunks_.size() - 1; }
  std::pair<std::size_t, std::size_t> chunk(std::size_t number) const {
    return {chunks_[number], chunks_[number + 1]};
  }
  void read_chunk(std::size_t number, std::size_t threads);

 private:
  struct Staging {
    void operator()(std::byte* memory) const;
  };

  std::size_t count() const { return rows_.size(); }
  void require_unchanged();
  std::pair<std::size_t, std::int64_t> place_of(std::size_t sample) const;
  bool look_at_samples();
  void list_reads();
  void stage(bool whole);
  void read(std::size_t begin, std::size_t end, std::size_t threads);
  [[noreturn]] void fail(const ReadFailure& failure) const;

  const FileRows& file_;
  const std::byte* memory_;
  std::int64_t row_stride_;
  std::optional<SampleBytes> alike_;  // of all samples, while reads_ isn't needed
  std::vector<RowRead> reads_;        // one for each sample
  std::vector<std::int64_t> rows_;    // of the array; in reads_, of the file
  std::vector<std::size_t> heads_;    // from the first byte that is read to where the sample begins
  std::vector<const std::byte*> data_;
  std::vector<std::size_t> chunks_;
  std::unique_ptr<std::byte, Staging> staging_;
  bool is_mapped_ = false;
  bool is_read_ = false;
};

}  // namespace pinfeed::runtime
