/*
 * Lists of tensors, which the library moves as one piece of memory: their own, if they lie in a row, or else scratch memory.
 */
#pragma once

#include <mutex>
#include <vector>

#include <ATen/ATen.h>

namespace commstream
{

struct Operation;

/*
 * Memory for copies of lists. New memory costs more than the copy where it is large, since the system clears its pages; so
 * two pieces are kept and used again, by whoever comes when nobody has a tensor in them. A device's allocator keeps memory itself.
 */
class Scratch
{
  public:
    /* n elements, not initialized. */
    at::Tensor take(int64_t n, const at::TensorOptions &options);
    void clear();

  private:
    std::mutex lock_;
    std::vector<at::Tensor> kept_;
};

/* The elements of a list, end to end. It is a copy if the list does not lie in a row, or shares memory with `outputs`. */
at::Tensor input_of_list(Operation &op, const std::vector<at::Tensor> &list, const std::vector<at::Tensor> &outputs);

/* Receives what belongs into a list, end to end. */
at::Tensor output_of_list(Operation &op, const std::vector<at::Tensor> &list);

} // namespace commstream
