/*
 * The sum of sparse tensors. The ranks tell each other how many elements they have, and then exchange indices and values. Each rank adds
 * all in the order of the ranks, so all get the same bits.
 */
#include <algorithm>
#include <array>

#include <ATen/core/LegacyTypeDispatch.h>

#include "backend.hpp"

namespace commstream
{

namespace
{

constexpr const char *name = "allreduce of sparse tensors";
constexpr int64_t most_dims = 30;

/* What ranks tell each other. All but the number of elements must be the same on all ranks. */
struct Form {
    int64_t elements, sparse_dims, dims, type;
    std::array<int64_t, most_dims> sizes;
};
constexpr int64_t form_words = sizeof(Form) / sizeof(int64_t);

at::Tensor words_of(const at::Tensor &t)
{
    at::Tensor words = at::zeros({form_words}, at::kLong);
    auto *form = static_cast<Form *>(words.data_ptr());
    form->elements = t._nnz();
    form->sparse_dims = t.sparse_dim();
    form->dims = t.dim();
    form->type = static_cast<int64_t>(t.scalar_type());
    std::copy(t.sizes().begin(), t.sizes().end(), form->sizes.begin());
    return words;
}

bool is_same(const Form &a, const Form &b)
{
    return a.sparse_dims == b.sparse_dims && a.dims == b.dims && a.type == b.type && a.sizes == b.sizes;
}

std::string text_of(const Form &form)
{
    return c10::str(static_cast<at::ScalarType>(form.type), " of sizes ",
                    at::IntArrayRef(form.sizes.data(), static_cast<size_t>(form.dims)), " of which ", form.sparse_dims, " are sparse");
}

std::vector<Form> forms_of(const at::Tensor &words, int rank)
{
    auto *first = static_cast<const Form *>(words.const_data_ptr());
    std::vector<Form> forms(first, first + words.size(0));
    const Form &mine = forms[static_cast<size_t>(rank)];
    for (const Form &form : forms)
        TORCH_CHECK_VALUE(is_same(form, mine), "commstream: ", name, ": ", text_of(mine), "; rank ", &form - forms.data(), " has ",
                          text_of(form), "; expected the same on all ranks");
    return forms;
}

void check(const Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "commstream: ", name, ": ", tensors.size(), " tensors; expected 1");
    const at::Tensor &t = tensors[0];
    TORCH_CHECK_VALUE(t.is_sparse() && t.device().is_cpu() && t.dim() <= most_dims, "commstream: ", name, ": a tensor of layout ",
                      t.layout(), " and ", t.dim(), " dimensions on ", t.device(), "; expected torch.sparse_coo with at most ", most_dims,
                      " on cpu");
    TORCH_CHECK_VALUE(opts.reduceOp == c10d::ReduceOp::SUM, "commstream: ", name, ": expected the operator SUM");
    (void)reduction_of(opts.reduceOp, t.scalar_type());
}

/* Blocks of each rank's count, end to end. */
Call gather_blocks(const at::Tensor &in, const at::Tensor &out, const std::vector<Form> &forms)
{
    Elements e = elements_of(out);
    std::vector<size_t> counts;
    int64_t total = out.size(0);
    for (const Form &form : forms)
        counts.push_back(total ? e.n / static_cast<size_t>(total) * static_cast<size_t>(form.elements) : 0);
    return {[=](comm_communicator *c, comm_request *r) {
        return comm_allgather_v(c, begin_of(in), begin_of(out), counts.data(), nullptr, e.type, r);
    }};
}

at::Tensor room_for(const at::Tensor &mine, int64_t total)
{
    std::vector<int64_t> sizes = mine.sizes().vec();
    sizes[0] = total;
    return at::empty(sizes, mine.options());
}

} // namespace

/* n words of each rank. Waits for all ranks. */
at::Tensor Backend::exchange(const at::Tensor &words, std::chrono::milliseconds timeout)
{
    auto op = begin(name, timeout);
    at::Tensor in = op->input(words), out = op->output(at::empty({size_, words.numel()}, at::kLong));
    Call call{[=](comm_communicator *c, comm_request *r) {
        return comm_allgather(c, begin_of(in), begin_of(out), static_cast<size_t>(in.numel()), COMM_I64, r);
    }};
    start(c10d::OpType::_ALLREDUCE_SPARSE, op, false, {call}, {})->wait();
    return out;
}

WorkPtr Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    auto op = begin(name, opts.timeout);
    TORCH_CHECK(!in_block(), "commstream: ", name, " inside of a coalescing block; its call waits for the other ranks");
    TORCH_CHECK_NOT_IMPLEMENTED(!in_estimate(), "commstream: the time of ", name, " cannot be estimated");
    check(tensors, opts);
    at::AutoDispatchBelowADInplaceOrView plain;
    at::Tensor t = tensors[0], mine = t.coalesce();
    std::vector<Form> forms = forms_of(exchange(words_of(mine), opts.timeout), rank_);
    int64_t total = 0;
    for (const Form &form : forms)
        total += form.elements;
    at::Tensor indices = op->input(mine._indices().t()), values = op->input(mine._values());
    at::Tensor all_indices = room_for(indices, total), all_values = room_for(values, total);
    op->keep.insert(op->keep.end(), {all_indices, all_values});
    op->outputs.push_back(t);
    op->after.push_back([=] {
        at::Tensor sum = at::_sparse_coo_tensor_unsafe(all_indices.t(), all_values, t.sizes()).coalesce();
        t.copy_(sum);
    });
    return start(c10d::OpType::_ALLREDUCE_SPARSE, op, is_async(opts, 0),
                 {gather_blocks(indices, all_indices, forms), gather_blocks(values, all_values, forms)}, tensors);
}

} // namespace commstream
