/* The collectives that move data: gather, scatter, allgather, alltoall. */
#include <ATen/core/LegacyTypeDispatch.h>

#include "backend.hpp"
#include "lists.hpp"

namespace commstream
{

namespace
{

void check_list(const Tensors &list, const at::Tensor &like, const char *name)
{
    for (const at::Tensor &t : list) {
        check_tensor(t, name);
        TORCH_CHECK_TYPE(t.scalar_type() == like.scalar_type(), "commstream: ", name, ": tensors of ", t.scalar_type(), " and ",
                         like.scalar_type(), "; expected one type");
    }
}

/* Counts in what the library moves, which are bytes for a type that it does not know. */
std::vector<size_t> counts_of(const Tensors &list)
{
    std::vector<size_t> counts;
    for (const at::Tensor &t : list)
        counts.push_back(elements_of(t).n);
    return counts;
}

bool all_equal(const std::vector<size_t> &counts)
{
    for (size_t n : counts)
        if (n != counts[0])
            return false;
    return true;
}

/* An input that shares memory with the output is copied, but for the place where the library takes it in place. */
at::Tensor apart(const at::Tensor &in, const at::Tensor &out)
{
    return in.is_alias_of(out) ? in.clone() : in;
}

bool is_block(const at::Tensor &in, const at::Tensor &out, int rank)
{
    return in.is_contiguous() && out.is_contiguous() && !in.is_conj() && in.numel() &&
           static_cast<const char *>(in.data_ptr()) == static_cast<const char *>(out.data_ptr()) + static_cast<size_t>(rank) * in.nbytes();
}

/* Of a side of an alltoall with parts of their own lengths. comm_alltoall_v takes no rank that has NULL on both sides. */
void *begin_of_parts(const at::Tensor &t)
{
    static char nothing;
    return t.numel() ? t.data_ptr() : &nothing;
}

/* The block sizes of one side of an alltoall, in what the library moves. */
std::vector<size_t> split_counts(const at::Tensor &t, const std::vector<int64_t> &splits, int size, const char *side)
{
    int64_t rows = t.dim() ? t.size(0) : 1;
    if (splits.empty()) {
        TORCH_CHECK_VALUE(rows % size == 0, "commstream: alltoall: ", side, " has ", rows, " rows; expected a multiple of ", size,
                          ", or the sizes of its parts");
        return std::vector<size_t>(static_cast<size_t>(size), elements_of(t).n / static_cast<size_t>(size));
    }
    TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(size), "commstream: alltoall: ", splits.size(), " parts of the ", side,
                      "; expected ", size);
    int64_t sum = 0;
    std::vector<size_t> counts;
    for (int64_t n : splits) {
        TORCH_CHECK_VALUE(n >= 0, "commstream: alltoall: a part of the ", side, " has ", n, " rows");
        sum += n;
        counts.push_back(rows ? elements_of(t).n / static_cast<size_t>(rows) * static_cast<size_t>(n) : 0);
    }
    TORCH_CHECK_VALUE(sum == rows, "commstream: alltoall: the parts of the ", side, " have ", sum, " rows; expected ", rows);
    return counts;
}

} // namespace

WorkPtr Backend::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    check_size(inputs.size(), 1, "allgather", "inputs");
    check_size(outputs.size(), 1, "allgather", "lists of outputs");
    return gather_lists(outputs, inputs, opts);
}

/* outputs[r][i] receives input i of rank r, as in ProcessGroupGloo. */
WorkPtr Backend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    check_size(outputs.size(), static_cast<size_t>(size_), "allgather", "lists of outputs");
    std::vector<Tensors> by_input(inputs.size());
    for (const Tensors &of_rank : outputs) {
        check_size(of_rank.size(), inputs.size(), "allgather", "outputs");
        for (size_t i = 0; i < inputs.size(); i++)
            by_input[i].push_back(of_rank[i]);
    }
    return gather_lists(by_input, inputs, opts);
}

/* outputs[i][r] receives input i of rank r. */
WorkPtr Backend::gather_lists(const std::vector<Tensors> &outputs, const Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    auto op = begin("allgather", opts.timeout);
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_tensor(inputs[i], "allgather");
        check_size(outputs[i].size(), static_cast<size_t>(size_), "allgather", "outputs");
        check_list(outputs[i], inputs[i], "allgather");
        auto counts = counts_of(outputs[i]);
        check_size(elements_of(inputs[i]).n, counts[static_cast<size_t>(rank_)], "allgather", "elements of the input");
        at::Tensor out = output_of_list(*op, outputs[i]);
        at::Tensor in = op->input(apart(inputs[i], out));
        Elements e = elements_of(in);
        if (all_equal(counts))
            calls.push_back(
                {[=](comm_communicator *c, comm_request *r) { return comm_allgather(c, begin_of(in), begin_of(out), e.n, e.type, r); },
                 "allgather", e.n, e.type});
        else
            calls.push_back({[=](comm_communicator *c, comm_request *r) {
                return comm_allgather_v(c, begin_of(in), begin_of(out), counts.data(), nullptr, e.type, r);
            }});
    }
    return start(c10d::OpType::ALLGATHER, op, is_async(opts, 0), calls, inputs);
}

WorkPtr Backend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts)
{
    Tensors outputs{output}, inputs{input};
    return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    auto op = begin("allgather", opts.timeout);
    check_size(outputs.size(), inputs.size(), "allgather", "outputs");
    std::vector<Call> calls;
    for (size_t i = 0; i < inputs.size(); i++) {
        check_tensor(inputs[i], "allgather");
        check_list({outputs[i]}, inputs[i], "allgather");
        check_size(static_cast<size_t>(outputs[i].numel()), static_cast<size_t>(inputs[i].numel() * size_), "allgather",
                   "elements of the output");
        bool in_place = is_block(inputs[i], outputs[i], rank_);
        at::Tensor in = op->input(in_place ? inputs[i] : apart(inputs[i], outputs[i])), out = op->output(outputs[i]);
        Elements e = elements_of(in);
        calls.push_back({[=](comm_communicator *c, comm_request *r) {
                             return comm_allgather(c, in_place ? COMM_IN_PLACE : begin_of(in), begin_of(out), e.n, e.type, r);
                         },
                         "allgather", e.n, e.type});
    }
    return start(c10d::OpType::_ALLGATHER_BASE, op, is_async(opts, 0), calls, inputs);
}

WorkPtr Backend::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts)
{
    auto op = begin("gather", opts.timeout);
    check_size(inputs.size(), 1, "gather", "inputs");
    check_tensor(inputs[0], "gather");
    check_root(opts.rootRank, "gather");
    auto root = static_cast<int32_t>(opts.rootRank);
    at::Tensor out;
    if (rank_ == root) {
        check_size(outputs.size(), 1, "gather", "lists of outputs");
        check_size(outputs[0].size(), static_cast<size_t>(size_), "gather", "outputs");
        check_list(outputs[0], inputs[0], "gather");
        for (const at::Tensor &t : outputs[0])
            check_size(static_cast<size_t>(t.numel()), static_cast<size_t>(inputs[0].numel()), "gather", "elements of an output");
        out = output_of_list(*op, outputs[0]);
    } else
        check_size(outputs.size(), 0, "gather", "lists of outputs on a rank that is not the root");
    at::Tensor in = op->input(out.defined() ? apart(inputs[0], out) : inputs[0]);
    Elements e = elements_of(in);
    Call call{[=](comm_communicator *c, comm_request *r) {
                  return comm_gather(c, begin_of(in), out.defined() ? begin_of(out) : nullptr, e.n, e.type, root, r);
              },
              "gather",
              e.n,
              e.type,
              COMM_SUM,
              root};
    return start(c10d::OpType::GATHER, op, is_async(opts, 0), {call}, inputs);
}

WorkPtr Backend::gather_single(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &opts)
{
    auto op = begin("gather", opts.timeout);
    check_tensor(input, "gather");
    check_root(opts.rootRank, "gather");
    auto root = static_cast<int32_t>(opts.rootRank);
    at::Tensor out;
    if (rank_ == root) {
        check_list({output}, input, "gather");
        check_size(static_cast<size_t>(output.numel()), static_cast<size_t>(input.numel() * size_), "gather", "elements of the output");
        out = op->output(output);
    }
    at::Tensor in = op->input(out.defined() ? apart(input, out) : input);
    Elements e = elements_of(in);
    Call call{[=](comm_communicator *c, comm_request *r) {
                  return comm_gather(c, begin_of(in), out.defined() ? begin_of(out) : nullptr, e.n, e.type, root, r);
              },
              "gather",
              e.n,
              e.type,
              COMM_SUM,
              root};
    return start(c10d::OpType::GATHER, op, is_async(opts, 0), {call}, input);
}

WorkPtr Backend::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts)
{
    auto op = begin("scatter", opts.timeout);
    check_size(outputs.size(), 1, "scatter", "outputs");
    check_tensor(outputs[0], "scatter");
    check_root(opts.rootRank, "scatter");
    auto root = static_cast<int32_t>(opts.rootRank);
    at::Tensor in;
    if (rank_ == root) {
        check_size(inputs.size(), 1, "scatter", "lists of inputs");
        check_size(inputs[0].size(), static_cast<size_t>(size_), "scatter", "inputs");
        check_list(inputs[0], outputs[0], "scatter");
        for (const at::Tensor &t : inputs[0])
            check_size(static_cast<size_t>(t.numel()), static_cast<size_t>(outputs[0].numel()), "scatter", "elements of an input");
        in = input_of_list(*op, inputs[0], outputs);
    } else
        check_size(inputs.size(), 0, "scatter", "lists of inputs on a rank that is not the root");
    at::Tensor out = op->output(outputs[0]);
    Elements e = elements_of(out);
    Call call{[=](comm_communicator *c, comm_request *r) {
                  return comm_scatter(c, in.defined() ? begin_of(in) : nullptr, begin_of(out), e.n, e.type, root, r);
              },
              "scatter",
              e.n,
              e.type,
              COMM_SUM,
              root};
    return start(c10d::OpType::SCATTER, op, is_async(opts, 0), {call}, inputs.empty() ? at::TensorList() : inputs[0]);
}

WorkPtr Backend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                               std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &opts)
{
    auto op = begin("alltoall", opts.timeout);
    check_tensor(input, "alltoall");
    check_list({output}, input, "alltoall");
    bool even = output_splits.empty() && input_splits.empty();
    if (even)
        check_size(static_cast<size_t>(output.numel()), static_cast<size_t>(input.numel()), "alltoall", "elements of the output");
    auto in_counts = split_counts(input, input_splits, size_, "input"), out_counts = split_counts(output, output_splits, size_, "output");
    at::Tensor in = op->input(apart(input, output)), out = op->output(output);
    comm_type type = elements_of(in).type;
    Call call{[=](comm_communicator *c, comm_request *r) {
        return comm_alltoall_v(c, begin_of_parts(in), in_counts.data(), nullptr, begin_of_parts(out), out_counts.data(), nullptr, type, r);
    }};
    if (even) { /* another rank may have given the same lengths, so the call is the same; only its time can be told */
        call.collective = "alltoall";
        call.n = in_counts[0];
        call.type = type;
    }
    return start(c10d::OpType::ALLTOALL_BASE, op, is_async(opts, 0), {call}, input);
}

WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts)
{
    auto op = begin("alltoall", opts.timeout);
    check_size(outputs.size(), static_cast<size_t>(size_), "alltoall", "outputs");
    check_size(inputs.size(), static_cast<size_t>(size_), "alltoall", "inputs");
    check_list(inputs, inputs[0], "alltoall");
    check_list(outputs, inputs[0], "alltoall");
    auto in_counts = counts_of(inputs), out_counts = counts_of(outputs);
    at::Tensor in = input_of_list(*op, inputs, outputs), out = output_of_list(*op, outputs);
    comm_type type = elements_of(in).type;
    Call call{[=](comm_communicator *c, comm_request *r) {
        return comm_alltoall_v(c, begin_of_parts(in), in_counts.data(), nullptr, begin_of_parts(out), out_counts.data(), nullptr, type, r);
    }};
    return start(c10d::OpType::ALLTOALL, op, is_async(opts, 0), {call}, inputs);
}

} // namespace commstream
