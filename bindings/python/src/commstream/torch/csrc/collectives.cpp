/* The collectives that reduce, broadcast and the barrier. */
#include <ATen/core/LegacyTypeDispatch.h>

#include "backend.hpp"
#include "lists.hpp"

namespace commstream
{

namespace
{

/* The input of a reduction, scaled where the operator says so: in a copy. */
at::Tensor scaled(const at::Tensor &t, const Reduction &reduction)
{
    if (!reduction.before)
        return t;
    at::AutoDispatchBelowADInplaceOrView plain;
    at::Tensor copy = t.clone();
    reduction.before(copy);
    return copy;
}

void scale_in_place(at::Tensor &t, const Reduction &reduction)
{
    at::AutoDispatchBelowADInplaceOrView plain;
    reduction.before(t);
}

} // namespace

WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    auto op = begin("broadcast", opts.timeout);
    check_size(tensors.size(), 1, "broadcast", "tensors");
    check_tensor(tensors[0], "broadcast");
    check_root(opts.rootRank, "broadcast");
    at::Tensor buffer = op->in_out(tensors[0]);
    Elements e = elements_of(buffer);
    auto root = static_cast<int32_t>(opts.rootRank);
    Call call{[=](comm_communicator *c, comm_request *r) { return comm_broadcast(c, begin_of(buffer), e.n, e.type, root, r); },
              "broadcast",
              e.n,
              e.type,
              COMM_SUM,
              root};
    return start(c10d::OpType::BROADCAST, op, is_async(opts, 0), {call}, tensors);
}

WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    check_size(tensors.size(), 1, "allreduce", "tensors");
    if (tensors[0].is_sparse())
        return allreduce_sparse(tensors, opts);
    c10d::AllreduceCoalescedOptions all;
    static_cast<c10d::AllreduceOptions &>(all) = opts;
    return allreduce_coalesced(tensors, all);
}

WorkPtr Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
    auto op = begin("allreduce", opts.timeout);
    std::vector<Call> calls;
    for (const at::Tensor &t : tensors) {
        check_tensor(t, "allreduce");
        Reduction reduction = reduction_of(opts.reduceOp, t.scalar_type());
        at::Tensor buffer = op->in_out(t);
        if (reduction.before && !in_estimate())
            scale_in_place(buffer, reduction);
        calls.push_back({[buffer, reduction](comm_communicator *c, comm_request *r) {
                             return comm_allreduce(c, COMM_IN_PLACE, begin_of(buffer), static_cast<size_t>(buffer.numel()), reduction.type,
                                                   reduction.op, r);
                         },
                         "allreduce", static_cast<size_t>(buffer.numel()), reduction.type, reduction.op});
    }
    return start(c10d::OpType::ALLREDUCE, op, is_async(opts, 0), calls, tensors);
}

WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    auto op = begin("reduce", opts.timeout);
    check_size(tensors.size(), 1, "reduce", "tensors");
    check_tensor(tensors[0], "reduce");
    check_root(opts.rootRank, "reduce");
    Reduction reduction = reduction_of(opts.reduceOp, tensors[0].scalar_type());
    auto root = static_cast<int32_t>(opts.rootRank);
    bool here = rank_ == root;
    at::Tensor buffer;
    if (here) {
        buffer = op->in_out(tensors[0]);
        if (reduction.before && !in_estimate())
            scale_in_place(buffer, reduction);
    } else {
        buffer = op->input(scaled(tensors[0], reduction));
        op->outputs.push_back(tensors[0]);
    }
    Call call{[=](comm_communicator *c, comm_request *r) {
                  void *p = begin_of(buffer);
                  return comm_reduce(c, here ? COMM_IN_PLACE : p, here ? p : nullptr, static_cast<size_t>(buffer.numel()), reduction.type,
                                     reduction.op, root, r);
              },
              "reduce",
              static_cast<size_t>(buffer.numel()),
              reduction.type,
              reduction.op,
              root};
    return start(c10d::OpType::REDUCE, op, is_async(opts, 0), {call}, tensors);
}

WorkPtr Backend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ReduceScatterOptions &opts)
{
    auto op = begin("reduce_scatter", opts.timeout);
    check_size(outputs.size(), 1, "reduce_scatter", "outputs");
    check_size(inputs.size(), 1, "reduce_scatter", "lists of inputs");
    check_size(inputs[0].size(), static_cast<size_t>(size_), "reduce_scatter", "inputs");
    check_tensor(outputs[0], "reduce_scatter");
    std::vector<size_t> counts;
    for (const at::Tensor &t : inputs[0]) {
        check_tensor(t, "reduce_scatter");
        TORCH_CHECK_TYPE(t.scalar_type() == outputs[0].scalar_type(), "commstream: reduce_scatter: input of ", t.scalar_type(),
                         "; expected ", outputs[0].scalar_type(), ", as the output");
        counts.push_back(static_cast<size_t>(t.numel()));
    }
    check_size(static_cast<size_t>(outputs[0].numel()), counts[static_cast<size_t>(rank_)], "reduce_scatter", "elements of the output");
    Reduction reduction = reduction_of(opts.reduceOp, outputs[0].scalar_type());
    at::Tensor in = op->input(scaled(input_of_list(*op, inputs[0], outputs), reduction)), out = op->output(outputs[0]);
    Call call{[=](comm_communicator *c, comm_request *r) {
        return comm_reduce_scatter_v(c, begin_of(in), begin_of(out), counts.data(), reduction.type, reduction.op, r);
    }};
    return start(c10d::OpType::REDUCE_SCATTER, op, is_async(opts, 0), {call}, inputs[0]);
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &opts)
{
    Tensors outputs{output}, inputs{input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts)
{
    auto op = begin("reduce_scatter", opts.timeout);
    check_size(inputs.size(), outputs.size(), "reduce_scatter", "inputs");
    std::vector<Call> calls;
    for (size_t i = 0; i < outputs.size(); i++) {
        check_tensor(outputs[i], "reduce_scatter");
        check_tensor(inputs[i], "reduce_scatter");
        TORCH_CHECK_TYPE(inputs[i].scalar_type() == outputs[i].scalar_type(), "commstream: reduce_scatter: input of ",
                         inputs[i].scalar_type(), "; expected ", outputs[i].scalar_type(), ", as the output");
        auto n = static_cast<size_t>(outputs[i].numel());
        check_size(static_cast<size_t>(inputs[i].numel()), n * static_cast<size_t>(size_), "reduce_scatter", "elements of the input");
        Reduction reduction = reduction_of(opts.reduceOp, outputs[i].scalar_type());
        bool shared = inputs[i].is_alias_of(outputs[i]);
        at::Tensor in = op->input(scaled(shared && !reduction.before ? inputs[i].clone() : inputs[i], reduction));
        at::Tensor out = op->output(outputs[i]);
        calls.push_back({[=](comm_communicator *c, comm_request *r) {
                             return comm_reduce_scatter(c, begin_of(in), begin_of(out), n, reduction.type, reduction.op, r);
                         },
                         "reduce_scatter", n, reduction.type, reduction.op});
    }
    return start(c10d::OpType::_REDUCE_SCATTER_BASE, op, is_async(opts, 0), calls, inputs);
}

WorkPtr Backend::barrier(const c10d::BarrierOptions &opts)
{
    auto op = begin("barrier", opts.timeout);
    Call call{[](comm_communicator *c, comm_request *r) { return comm_barrier(c, r); }, "barrier"};
    return start(c10d::OpType::BARRIER, op, is_async(opts, 0), {call}, {});
}

} // namespace commstream
