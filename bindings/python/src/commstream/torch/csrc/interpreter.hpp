/* The lock of Python's interpreter. */
#pragma once

#include <optional>

#include <pybind11/pybind11.h>

namespace commstream
{

/* Gives the lock up for a while, if this thread has it: whoever settles an operation may need it. */
class Unlocked
{
  public:
    Unlocked()
    {
        if (PyGILState_Check())
            left_.emplace();
    }

  private:
    std::optional<pybind11::gil_scoped_release> left_;
};

} // namespace commstream
