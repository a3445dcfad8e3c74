#include "runtime/row_runs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <utility>

namespace pinfeed::runtime {
namespace {

constexpr std::size_t kMaxRows = 64;  // in one read
constexpr std::size_t kMaxBytes = std::size_t{512} << 10;

}  // namespace

RowRuns::RowRuns(std::span<const RowRead> reads) : reads_(reads) {
  std::vector<std::size_t> order(reads.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {},
                    [&](std::size_t i) { return std::pair(reads[i].file, reads[i].offset); });
  parts_.reserve(reads.size());
  for (const std::size_t i : order) {
    for (std::size_t done = 0; done < reads[i].bytes; done += kMaxBytes) {
      add(i, done, std::min(kMaxBytes, reads[i].bytes - done));
    }
  }
}

void RowRuns::add(std::size_t read, std::size_t skipped, std::size_t bytes) {
  const RowRead& from = reads_[read];
  const std::int64_t offset = from.offset + static_cast<std::int64_t>(skipped);
  const bool touches =
      !runs_.empty() && runs_.back().file == from.file &&
      runs_.back().offset + static_cast<std::int64_t>(runs_.back().bytes) == offset;
  if (!touches || runs_.back().bytes + bytes > kMaxBytes ||
      runs_.back().end - runs_.back().begin == kMaxRows) {
    runs_.push_back({parts_.size(), parts_.size(), from.file, offset, 0});
  }
  // Rows that are only requested have no address yet.
  parts_.push_back({from.to == nullptr ? nullptr : from.to + skipped, bytes, read});
  runs_.back().end = parts_.size();
  runs_.back().bytes += bytes;
}

bool RowRuns::attempt(RowRun& run, bool wait) const noexcept {
  std::array<iovec, kMaxRows> rest;
  int count = 0;
  std::size_t skip = run.done;
  for (std::size_t i = run.begin; i < run.end; ++i) {
    const std::size_t skipped = std::min(skip, parts_[i].bytes);
    skip -= skipped;
    if (skipped == parts_[i].bytes) continue;
    rest[static_cast<std::size_t>(count++)] = {parts_[i].to + skipped, parts_[i].bytes - skipped};
  }
  const std::int64_t offset = run.offset + static_cast<std::int64_t>(run.done);
  const ssize_t got = wait ? preadv(run.file_open->fd(), rest.data(), count, offset)
                           : run.file_open->read_cached(rest.data(), count, offset);
  if (got > 0) {
    run.done += static_cast<std::size_t>(got);
  } else if (wait && got == 0) {
    run.ended = true;
  } else if (wait && errno != EINTR) {
    run.error = errno;
  } else if (!wait && got < 0) {
    run.unsure = errno == EOPNOTSUPP;
  }
  return run.done == run.bytes || run.ended || run.error != 0;
}

const RowRead& RowRuns::read_of(const RowRun& run) const {
  std::size_t i = run.begin;
  for (std::size_t done = run.done; i + 1 < run.end && done >= parts_[i].bytes; ++i) {
    done -= parts_[i].bytes;
  }
  return reads_[parts_[i].read];
}

}  // namespace pinfeed::runtime
