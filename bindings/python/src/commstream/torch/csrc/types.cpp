#include "types.hpp"

#include <ATen/ATen.h>

#include "device.hpp"

namespace commstream
{

namespace
{

struct TypeRow {
    at::ScalarType torch;
    comm_type type;
};

constexpr TypeRow types[] = {
    {at::kFloat, COMM_F32},
    {at::kDouble, COMM_F64},
    {at::kHalf, COMM_F16},
    {at::kBFloat16, COMM_BF16},
    {at::kFloat8_e4m3fn, COMM_F8E4M3},
    {at::kFloat8_e5m2, COMM_F8E5M2},
    {at::kComplexFloat, COMM_C64},
    {at::kComplexDouble, COMM_C128},
    {at::kBool, COMM_BOOL},
    {at::kChar, COMM_I8},
    {at::kShort, COMM_I16},
    {at::kInt, COMM_I32},
    {at::kLong, COMM_I64},
    {at::kByte, COMM_U8},
    {at::kUInt16, COMM_U16},
    {at::kUInt32, COMM_U32},
    {at::kUInt64, COMM_U64},
};

struct OpRow {
    c10d::ReduceOp::RedOpType torch;
    comm_op op;
    comm_op of_bool; /* on truth values; 0: none */
    const char *name;
};

constexpr OpRow ops[] = {
    {c10d::ReduceOp::SUM, COMM_SUM, COMM_LOR, "SUM"},           {c10d::ReduceOp::AVG, COMM_AVG, 0, "AVG"},
    {c10d::ReduceOp::PRODUCT, COMM_PROD, COMM_LAND, "PRODUCT"}, {c10d::ReduceOp::MIN, COMM_MIN, COMM_LAND, "MIN"},
    {c10d::ReduceOp::MAX, COMM_MAX, COMM_LOR, "MAX"},           {c10d::ReduceOp::BAND, COMM_BAND, COMM_LAND, "BAND"},
    {c10d::ReduceOp::BOR, COMM_BOR, COMM_LOR, "BOR"},           {c10d::ReduceOp::BXOR, COMM_BXOR, COMM_LXOR, "BXOR"},
    {c10d::ReduceOp::PREMUL_SUM, COMM_SUM, 0, "PREMUL_SUM"},
};

comm_type type_of(at::ScalarType t)
{
    for (const TypeRow &row : types)
        if (row.torch == t)
            return row.type;
    return COMM_BYTE;
}

const OpRow &row_of(const c10d::ReduceOp &op)
{
    for (const OpRow &row : ops)
        if (row.torch == op.op_)
            return row;
    TORCH_CHECK(false, "commstream: reduce operator number ", static_cast<int>(op.op_), " is not known");
}

std::function<void(at::Tensor &)> scaling(const c10d::ReduceOp &op)
{
    /* By this name in all versions of torch. */
    auto *factor = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK(factor, "commstream: PREMUL_SUM without a factor; expected one made by torch.distributed._make_nccl_premul_sum");
    if (factor->tensor_factor.defined())
        return [by = factor->tensor_factor](at::Tensor &t) { t.mul_(by); };
    return [by = factor->double_factor](at::Tensor &t) { t.mul_(by); };
}

} // namespace

Elements elements_of(const at::Tensor &t)
{
    comm_type type = type_of(t.scalar_type());
    return {type, type == COMM_BYTE ? t.nbytes() : static_cast<size_t>(t.numel())};
}

Reduction reduction_of(const c10d::ReduceOp &op, at::ScalarType type)
{
    const OpRow &row = row_of(op);
    Reduction r{type_of(type), type == at::kBool ? row.of_bool : row.op, {}};
    TORCH_CHECK_TYPE(r.type != COMM_BYTE && r.op, "commstream: cannot reduce ", type, " with ", row.name);
    if (op.op_ == c10d::ReduceOp::PREMUL_SUM)
        r.before = scaling(op);
    return r;
}

void check_tensor(const at::Tensor &t, const char *name)
{
    TORCH_CHECK_VALUE(t.layout() == at::kStrided, "commstream: ", name, ": a tensor of layout ", t.layout(), "; expected a dense one");
    TORCH_CHECK_VALUE(t.device().is_cpu() || is_served(t.device().type()), "commstream: ", name, ": a tensor on ", t.device(),
                      "; expected one on cpu or cuda");
}

void check_host_tensor(const at::Tensor &t, const char *name)
{
    check_tensor(t, name);
    TORCH_CHECK_VALUE(t.device().is_cpu(), "commstream: ", name, ": a tensor on ", t.device(), "; expected one on cpu");
}

} // namespace commstream
