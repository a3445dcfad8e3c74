// An error about an argument or a sample, passed to Python as data.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <exception>
#include <string>

namespace pinfeed::bindings {

// The subject of a message: "normalize: images", or in a batch "Collate: entry ['image']" and the
// number of a sample.
struct Subject {
  const std::string& name;
  std::int64_t sample = -1;  // -1: the whole argument
};

// pinfeed.arguments.Problem, which formats it: "SUBJECT of sample 3: expected EXPECTED, got GOT;
// HINT". Without GOT, EXPECTED is the whole statement.
class Problem : public std::exception {
 public:
  Problem(PyObject* type, const Subject& subject, std::string expected, std::string got,
          std::string hint)
      : type_(type),
        name_(subject.name),
        sample_(subject.sample),
        expected_(std::move(expected)),
        got_(std::move(got)),
        hint_(std::move(hint)) {}

  // Marks samples that differ in shape. Python's Problem then has the hint.
  Problem of_shapes() && {
    differs_ = true;
    return std::move(*this);
  }

  // Sets Python's error.
  void raise() const;

 private:
  PyObject* type_;
  std::string name_;
  std::int64_t sample_;
  std::string expected_, got_, hint_;
  bool differs_ = false;
};

inline Problem wrong_type(const Subject& subject, std::string expected, std::string got = "",
                          std::string hint = "") {
  return {PyExc_TypeError, subject, std::move(expected), std::move(got), std::move(hint)};
}

inline Problem wrong_index(const Subject& subject, std::string expected) {
  return {PyExc_IndexError, subject, std::move(expected), "", ""};
}

inline Problem wrong_value(const Subject& subject, std::string expected, std::string got = "",
                           std::string hint = "") {
  return {PyExc_ValueError, subject, std::move(expected), std::move(got), std::move(hint)};
}

}  // namespace pinfeed::bindings
