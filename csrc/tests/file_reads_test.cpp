// The samples of a batch in files: read to their places, in chunks, or looked at where they are.
#include "runtime/file_reads.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "tests/row_files_case.h"

namespace {

using namespace pinfeed::tests;
using pinfeed::runtime::FileError;
using pinfeed::runtime::FileReads;
using pinfeed::runtime::FileRows;
using pinfeed::runtime::PartEnds;
using pinfeed::runtime::SampleBytes;

constexpr std::int64_t kStride = kRow;
const std::vector<std::int64_t> kShape{kStride}, kItems{1};

// The same 1,000 rows in one file, and in three; a file alone is told from the first of many by its
// ends. In three, file i holds the bytes of byte_at(i, ...).
struct Rows {
  explicit Rows(const std::vector<std::int64_t>& counts) {
    std::vector<RowFile> files;
    std::vector<std::int64_t> offsets, ends;
    for (const std::int64_t count : counts) {
      files.push_back(folder.add(size_of(count)));
      offsets.push_back(kHeader);
      ends.push_back((ends.empty() ? 0 : ends.back()) + count);
    }
    const bool is_one = counts.size() == 1;
    Descriptor open = is_one ? only(folder.path(0)) : Descriptor();
    if (is_one) files[0].marks = {};
    rows.files = std::make_shared<RowFiles>(std::move(files), std::move(open), kMuch);
    rows.offsets = std::move(offsets);
    if (!is_one) rows.ends = PartEnds(std::move(ends));
  }

  bool is_row(std::int64_t row, const std::byte* data, std::int64_t skipped = 0) const {
    std::size_t file = 0;
    if (!rows.ends.empty()) {
      file = rows.ends.part_of(row);
      row -= rows.ends.first_row(file);
    }
    for (std::int64_t i = 0; i < kStride - skipped; ++i) {
      if (data[i] != byte_at(file, kHeader + row * kStride + skipped + i)) return false;
    }
    return true;
  }

  Folder folder;
  FileRows rows;
};

const std::vector<std::vector<std::int64_t>> kLayouts{{1000}, {300, 0, 690, 10}};

// More rows than fit in one chunk of 8 MiB.
std::vector<std::int64_t> many_rows() {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 6000; ++i) rows.push_back(i * 7919 % 1000);
  return rows;
}

// Any address: nothing is looked at where `memory` says.
const auto* const kMemory = reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 32);

FileReads reads_of(const Rows& rows, std::span<const std::int64_t> chosen, bool alike) {
  FileReads reads(rows.rows, kMemory, kStride);
  const SampleBytes bytes(kShape, kItems, 1);
  if (alike) {
    reads.add_rows(chosen, bytes);
  } else {
    for (const std::int64_t row : chosen) reads.add(row, kMemory + row * kStride, bytes);
  }
  return reads;
}

// Reads rows until they are looked at where they are mapped.
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

void test_ways_to_read() {
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

      Rows fresh(counts);  // of the other, rows may be mapped by now
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
      hot.check();
    }
  }
}

// A reversed row begins at its last byte.
void test_reversed_rows() {
  const Rows rows({1000});
  FileReads reads(rows.rows, kMemory, kStride);
  const SampleBytes reversed(kShape, std::vector<std::int64_t>{-1}, 1);
  reads.add(5, kMemory + 6 * kStride - 1, reversed);
  reads.plan(true, 1);
  CHECK(rows.is_row(5, reads.data(0) - (kStride - 1)));
}

template <class Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const FileError& error) {
    return std::to_string(error.error_number) + " " + error.what();
  }
  return "";
}

void test_messages() {
  const std::vector<std::int64_t> chosen{2, 995};
  for (const bool alike : {true, false}) {
    Rows rows({1000});
    const std::string path = rows.folder.path(0);
    CHECK(truncate(path.c_str(), size_of(990)) == 0);
    FileReads reads = reads_of(rows, chosen, alike);
    CHECK(message_of([&] { reads.plan(true, 1); }) ==
          "0 " + path + ": the file was cut short: it has " + std::to_string(size_of(990)) +
              " bytes, row 995 ends at byte " + std::to_string(size_of(996)));

    Rows parts({300, 700});
    const std::string second = parts.folder.path(1);
    CHECK(unlink(second.c_str()) == 0);
    FileReads gone = reads_of(parts, chosen, alike);
    // The row's number is that in its file.
    CHECK(message_of([&] { gone.plan(true, 1); }) ==
          std::to_string(ENOENT) + " " + second + ": row 695 (bytes " +
              std::to_string(size_of(695)) + " to " + std::to_string(size_of(696)) +
              ") can't be read: " + std::strerror(ENOENT));
  }
}

void test_a_file_that_shrinks_under_mapped_rows() {
  const std::vector<std::int64_t> chosen{2, 995};
  for (const auto& counts : kLayouts) {
    Rows rows(counts);
    const std::vector<std::int64_t> all = many_rows();
    CHECK(becomes_mapped(rows, all));
    FileReads reads = reads_of(rows, chosen, true);
    CHECK(reads.find_mapped());
    const std::size_t last = counts.size() - 1;
    CHECK(truncate(rows.folder.path(last).c_str(), kHeader) == 0);
    volatile std::byte touched = *reads.data(1);  // a zero, and a note, instead of SIGBUS
    static_cast<void>(touched);
    CHECK(message_of([&] { reads.check(); }).find("the file was cut short") != std::string::npos);
  }
}

}  // namespace

void file_reads_tests() {
  run("file reads: which bytes a sample touches", test_bytes_of_samples);
  run("file reads: to their places, in chunks, as a whole, mapped", test_ways_to_read);
  run("file reads: rows that are reversed", test_reversed_rows);
  run("file reads: what messages say", test_messages);
  run("file reads: a file that shrinks under mapped rows",
      test_a_file_that_shrinks_under_mapped_rows);
}
