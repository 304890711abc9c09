#include "lists.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <ATen/core/LegacyTypeDispatch.h>

#include "operation.hpp"

namespace commstream
{

namespace
{

using Tensors = std::vector<at::Tensor>;

/* Below this malloc has memory at hand. */
constexpr size_t smallest_scratch = 65536, most_scratches = 2;

bool in_a_row(const Tensors &list)
{
    const char *next = nullptr;
    for (const at::Tensor &t : list) {
        if (!t.is_contiguous() || t.is_conj() || t.is_neg() || (next && static_cast<const char *>(t.data_ptr()) != next))
            return false;
        next = static_cast<const char *>(t.data_ptr()) + t.nbytes();
    }
    return next && list[0].storage().is_alias_of(list.back().storage()) &&
           list[0].storage().nbytes() >= static_cast<size_t>(next - static_cast<const char *>(list[0].data_ptr()));
}

int64_t elements(const Tensors &list)
{
    int64_t n = 0;
    for (const at::Tensor &t : list)
        n += t.numel();
    return n;
}

/* Up to this a copy by torch takes longer than its bytes: it makes views and looks up its kernel. */
constexpr size_t largest_plain = 65536;

bool is_plain(const at::Tensor &t, const at::Tensor &like)
{
    return t.device().is_cpu() && t.nbytes() <= largest_plain && t.is_contiguous() && !t.is_conj() && !t.is_neg() &&
           t.scalar_type() == like.scalar_type();
}

void copy_in(const at::Tensor &flat, const Tensors &list)
{
    if (std::all_of(list.begin(), list.end(), [&](const at::Tensor &t) { return is_plain(t, flat); })) {
        auto to = static_cast<char *>(flat.data_ptr());
        for (const at::Tensor &t : list) {
            if (t.numel())
                memcpy(to, t.data_ptr(), t.nbytes());
            to += t.nbytes();
        }
        return;
    }
    Tensors parts;
    for (const at::Tensor &t : list)
        parts.push_back(t.reshape({-1}));
    at::Tensor out = flat;
    at::cat_out(out, parts);
}

void copy_out(const at::Tensor &flat, const Tensors &list)
{
    int64_t at = 0;
    for (const at::Tensor &t : list) {
        if (is_plain(t, flat) && t.numel())
            memcpy(t.data_ptr(), static_cast<const char *>(flat.data_ptr()) + static_cast<size_t>(at) * flat.itemsize(), t.nbytes());
        else
            t.copy_(flat.narrow(0, at, t.numel()).view(t.sizes()));
        at += t.numel();
    }
}

void use_all(Operation &op, const Tensors &list)
{
    for (const at::Tensor &t : list)
        op.use(t.device());
}

bool is_free(const at::Tensor &kept)
{
    bool alone = kept.storage().use_count() == 1;
    std::atomic_thread_fence(std::memory_order_acquire); /* what the last user of it did comes before */
    return alone;
}

} // namespace

at::Tensor Scratch::take(int64_t n, const at::TensorOptions &options)
{
    size_t bytes = static_cast<size_t>(n) * options.dtype().itemsize();
    if (!options.device().is_cpu() || bytes < smallest_scratch || c10::isQIntType(c10::typeMetaToScalarType(options.dtype())))
        return at::empty({n}, options);
    auto count = static_cast<int64_t>(bytes);
    std::lock_guard<std::mutex> hold(lock_);
    auto fits = [&](const at::Tensor &t) { return t.nbytes() >= bytes && t.nbytes() / 4 <= bytes && is_free(t); };
    auto found = std::find_if(kept_.begin(), kept_.end(), fits);
    at::Tensor piece = found != kept_.end() ? *found : at::empty({count}, options.dtype(at::kByte));
    if (found == kept_.end()) {
        if (kept_.size() == most_scratches)
            kept_.erase(kept_.begin());
        kept_.push_back(piece);
    }
    return piece.narrow(0, 0, count).view(c10::typeMetaToScalarType(options.dtype()));
}

void Scratch::clear()
{
    std::lock_guard<std::mutex> hold(lock_);
    kept_.clear();
}

at::Tensor input_of_list(Operation &op, const Tensors &list, const Tensors &outputs)
{
    at::AutoDispatchBelowADInplaceOrView plain;
    use_all(op, list);
    if (in_a_row(list)) {
        at::Tensor row = list[0].as_strided({elements(list)}, {1});
        if (std::none_of(outputs.begin(), outputs.end(), [&](const at::Tensor &t) { return t.is_alias_of(row); }))
            return op.input(row);
    }
    at::Tensor copy = op.world->scratch.take(elements(list), list[0].options());
    copy_in(copy, list);
    return op.input(copy);
}

at::Tensor output_of_list(Operation &op, const Tensors &list)
{
    at::AutoDispatchBelowADInplaceOrView plain;
    use_all(op, list);
    for (const at::Tensor &t : list)
        op.check_output(t);
    op.outputs.insert(op.outputs.end(), list.begin(), list.end());
    if (in_a_row(list)) {
        at::Tensor row = list[0].as_strided({elements(list)}, {1});
        op.keep.push_back(row);
        return row;
    }
    at::Tensor flat = op.world->scratch.take(elements(list), list[0].options());
    op.keep.push_back(flat);
    op.after.push_back([list, flat] { copy_out(flat, list); });
    return flat;
}

} // namespace commstream
