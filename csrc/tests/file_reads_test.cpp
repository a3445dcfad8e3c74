// The samples of a batch in files: read at once, in chunks, or used where they are mapped.
#include "runtime/file_reads.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "tests/row_files_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::runtime::FileReads;
using pinfeed::runtime::FileRows;
using pinfeed::runtime::PartEnds;
using pinfeed::runtime::SampleBytes;

constexpr std::int64_t kStride = kRow;
const std::vector<std::int64_t> kShape{kStride}, kItems{1};

// The same 1,000 rows in one file, which is opened and mapped, and in three. In three, file i has
// the bytes byte_at(i, ...).
struct Rows {
  explicit Rows(const std::vector<std::int64_t>& counts) {
    std::vector<RowFile> files;
    std::vector<std::int64_t> offsets, ends;
    for (const std::int64_t count : counts) {
      files.push_back(folder.add(size_of(count)));
      offsets.push_back(kHeader);
      ends.push_back((ends.empty() ? 0 : ends.back()) + count);
    }
    if (counts.size() == 1) {
      files[0] = opened(folder.path(0));
      const auto size = static_cast<std::size_t>(size_of(counts[0]));
      void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, files[0].opened->fd(), 0);
      CHECK(mapped != MAP_FAILED);
      files[0].mapped = static_cast<const std::byte*>(mapped);
      memory = files[0].mapped + kHeader;
    }
    rows.files = std::make_shared<RowFiles>(std::move(files));
    rows.offsets = std::move(offsets);
    rows.ends = PartEnds(std::move(ends));
  }

  bool is_row(std::int64_t row, const std::byte* data, std::int64_t skipped = 0) const {
    const std::size_t file = rows.ends.part_of(row);
    row -= rows.ends.first_row(file);
    for (std::int64_t i = 0; i < kStride - skipped; ++i) {
      if (data[i] != byte_at(file, kHeader + row * kStride + skipped + i)) return false;
    }
    return true;
  }

  Folder folder;
  FileRows rows;
  const std::byte* memory = nullptr;  // of one file, until the end of the process
};

const std::vector<std::vector<std::int64_t>> kLayouts{{1000}, {300, 0, 690, 10}};

// More rows than fit in one chunk of 8 MiB.
std::vector<std::int64_t> many_rows() {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 6000; ++i) rows.push_back(i * 7919 % 1000);
  return rows;
}

FileReads reads_of(const Rows& rows, std::span<const std::int64_t> chosen, bool alike) {
  FileReads reads(rows.rows, rows.memory, kStride);
  const SampleBytes bytes(kShape, kItems, 1);
  if (alike) {
    reads.add_rows(chosen, bytes);
  } else {
    for (const std::int64_t row : chosen) reads.add(row, rows.memory + row * kStride, bytes);
  }
  return reads;
}

// Reads rows until they are used where they are mapped.
bool becomes_mapped(const Rows& rows, std::span<const std::int64_t> chosen) {
  for (int round = 0; round < 100; ++round) {
    FileReads reads = reads_of(rows, chosen, true);
    reads.plan(true, 1);
    if (reads.is_mapped()) return true;
  }
  return false;
}

void test_bytes_of_samples() {
  const std::vector<std::int64_t> shape{3, 5};
  const SampleBytes plain(shape, std::vector<std::int64_t>{40, 8}, 8);
  CHECK(plain.begin == 0 && plain.end == 120 && plain.used == 120);
  const SampleBytes flipped(shape, std::vector<std::int64_t>{-40, 8}, 8);
  CHECK(flipped.begin == -80 && flipped.end == 40 && flipped.used == 120);
  const SampleBytes apart(shape, std::vector<std::int64_t>{1 << 20, 8}, 8);
  CHECK(apart.end == (2 << 20) + 40 && plain.is_dense() && !apart.is_dense());
  const SampleBytes none(std::vector<std::int64_t>{0, 5}, std::vector<std::int64_t>{40, 8}, 8);
  CHECK(none.begin == 0 && none.end == 0);
}

void test_kinds_of_reads() {
  const std::vector<std::int64_t> chosen = many_rows();
  for (const auto& counts : kLayouts) {
    for (const bool alike : {true, false}) {
      const Rows rows(counts);
      FileReads straight = reads_of(rows, chosen, alike);
      CHECK(!straight.find_mapped());
      std::vector<std::byte> out(chosen.size() * kRow);
      straight.read_to(out.data(), 2);
      bool same = true;
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        same = same && rows.is_row(chosen[i], &out[i * kRow]);
      }
      CHECK(same);

      Rows fresh(counts);  // because `rows` may be mapped by now
      FileReads chunked = reads_of(fresh, chosen, alike);
      chunked.plan(false, 2);
      CHECK(!chunked.is_ready() && chunked.chunks() == 3);
      std::size_t expected = 0;
      for (std::size_t chunk = 0; chunk < chunked.chunks(); ++chunk) {
        chunked.read_chunk(chunk, 2);
        const auto [begin, end] = chunked.chunk(chunk);
        CHECK(begin == expected && end > begin);
        for (; expected < end; ++expected) {
          same = same && fresh.is_row(chosen[expected], chunked.data(expected));
        }
      }
      CHECK(same && expected == chosen.size());

      Rows others(counts);
      FileReads whole = reads_of(others, chosen, alike);
      whole.plan(true, 2);
      CHECK(whole.is_ready() && !whole.is_mapped() && whole.chunks() == 1);
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        same = same && others.is_row(chosen[i], whole.data(i));
      }
      CHECK(same);

      CHECK(becomes_mapped(others, chosen));
      FileReads hot = reads_of(others, chosen, alike);
      hot.plan(true, 1);
      CHECK(hot.is_mapped() && hot.is_ready() && hot.chunks() == 1);
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        same = same && others.is_row(chosen[i], hot.data(i));
      }
      CHECK(same);
    }
  }
}

// A reversed row begins at its last byte.
void test_reversed_rows() {
  const Rows rows({1000});
  const SampleBytes reversed(kShape, std::vector<std::int64_t>{-1}, 1);
  for (const bool hot : {false, true}) {
    if (hot) CHECK(becomes_mapped(rows, many_rows()));
    FileReads reads(rows.rows, rows.memory, kStride);
    reads.add(5, rows.memory + 6 * kStride - 1, reversed);
    reads.plan(true, 1);
    CHECK(reads.is_mapped() == hot && rows.is_row(5, reads.data(0) - (kStride - 1)));
  }
}

// A sample at the very end of a file that ends with its page has no byte that could be checked.
void test_rows_of_no_bytes() {
  const Rows rows({1000});
  CHECK(becomes_mapped(rows, many_rows()));
  const SampleBytes none(std::vector<std::int64_t>{0}, kItems, 1);
  FileReads reads(rows.rows, rows.memory, kStride);
  for (int i = 0; i < 2; ++i) reads.add(1000, rows.memory + (std::int64_t{1} << 30), none);
  reads.plan(true, 1);
  CHECK(reads.is_ready() && reads.chunks() == 1);
}

// A file that is cut after its size was checked: the message names the row, and how to fix it.
void test_message_of_a_short_file() {
  for (const bool alike : {true, false}) {
    Rows rows({1000});
    const std::string path = rows.folder.path(0);
    CHECK(truncate(path.c_str(), size_of(990)) == 0);
    const std::vector<std::int64_t> chosen{2, 995};
    FileReads reads = reads_of(rows, chosen, alike);
    std::string message;
    try {
      reads.plan(true, 1);
    } catch (const pinfeed::runtime::FileError& error) {
      message = error.what();
    }
    CHECK(message == path + ": the file was cut short: it has " + std::to_string(size_of(990)) +
                         " bytes, but row 995 ends at byte " + std::to_string(size_of(996)) +
                         "; write or download it again");
  }
}

}  // namespace

void file_reads_tests() {
  run("file reads: which bytes a sample touches", test_bytes_of_samples);
  run("file reads: to an output, in chunks, as a whole, mapped", test_kinds_of_reads);
  run("file reads: rows that are reversed", test_reversed_rows);
  run("file reads: rows of no bytes", test_rows_of_no_bytes);
  run("file reads: the message of a short file", test_message_of_a_short_file);
}
