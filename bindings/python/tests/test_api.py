"""Every function of the C headers has a form in Python, a docstring and a stub; a new function without a row here fails."""
import ast
import copy
import inspect
import pickle
import re
from pathlib import Path

import commstream as cs

FORMS = {
    "comm_abort": "Communicator.abort",
    "comm_accumulate": "Window.accumulate",
    "comm_agree": "Communicator.agree",
    "comm_allgather": "Communicator.allgather",
    "comm_allgather_v": "Communicator.allgather_v",
    "comm_allreduce": "Communicator.allreduce",
    "comm_alltoall": "Communicator.alltoall",
    "comm_alltoall_v": "Communicator.alltoall_v",
    "comm_arm": "Communicator.arm",
    "comm_barrier": "Communicator.barrier",
    "comm_broadcast": "Communicator.broadcast",
    "comm_broadcast_bytes": "Communicator.broadcast_bytes",
    "comm_buckets_create": "Communicator.buckets",
    "comm_buckets_data": "Buckets.data",
    "comm_buckets_free": "Buckets.free",
    "comm_buckets_hold": "Buckets.hold",
    "comm_buckets_ready": "Buckets.ready",
    "comm_buckets_ready_stream": "Buckets.ready_stream",
    "comm_buckets_wait": "Buckets.wait",
    "comm_buckets_wait_stream": "Buckets.wait_stream",
    "comm_cancel": "Request.cancel",
    "comm_close": "Communicator.close",
    "comm_compare_swap": "Window.compare_swap",
    "comm_describe": "Communicator.describe",
    "comm_describe_algorithm": "describe_algorithms",
    "comm_describe_backend": "describe_backends",
    "comm_describe_machine": "Communicator.describe_machine",
    "comm_describe_option": "describe_options",
    "comm_describe_peer": "Communicator.describe_peer",
    "comm_describe_request": "describe_request",
    "comm_dup": "Communicator.dup",
    "comm_error_detail": "Communicator.error_detail",
    "comm_event_create": "Communicator.event",
    "comm_event_free": "Event.destroy",
    "comm_event_query": "Event.query",
    "comm_event_record": "Event.record",
    "comm_event_record_stream": "Event.record_stream",
    "comm_event_reset": "Event.reset",
    "comm_event_set": "Event.set",
    "comm_event_sync": "Event.sync",
    "comm_explain": "Communicator.explain",
    "comm_exscan": "Communicator.exscan",
    "comm_fd": "Communicator.fileno",
    "comm_fetch_op": "Window.fetch_op",
    "comm_gather": "Communicator.gather",
    "comm_gather_v": "Communicator.gather_v",
    "comm_get": "Window.get",
    "comm_group_begin": "Communicator.group",
    "comm_group_end": "Recorder.end",
    "comm_id_create": "unique_id",
    "comm_last": "Communicator.last",
    "comm_mem_alloc": "Communicator.mem_alloc",
    "comm_mem_alloc_symmetric": "Communicator.mem_alloc_symmetric",
    "comm_mem_free": "Memory.free",
    "comm_mem_register": "Communicator.mem_register",
    "comm_mem_unregister": "Registration.free",
    "comm_notify": "Request.add_done_callback",
    "comm_op_create": "Communicator.operator",
    "comm_op_create_premul_sum": "Communicator.premul_sum",
    "comm_op_free": "Operator.free",
    "comm_open": "open",
    "comm_open_local": "open_local",
    "comm_plan_begin": "Communicator.plan",
    "comm_plan_end": "Recorder.end",
    "comm_plan_free": "Plan.free",
    "comm_plan_start": "Plan.start",
    "comm_predict": "Communicator.predict",
    "comm_probe": "Communicator.probe",
    "comm_progress": "Communicator.progress",
    "comm_put": "Window.put",
    "comm_queue_wait_event": "Communicator.queue_wait",
    "comm_queue_wait_request": "Communicator.queue_wait",
    "comm_queue_wait_stream": "Communicator.queue_wait_stream",
    "comm_rank": "Communicator.rank",
    "comm_recv": "Communicator.recv",
    "comm_reduce": "Communicator.reduce",
    "comm_reduce_scatter": "Communicator.reduce_scatter",
    "comm_reduce_scatter_v": "Communicator.reduce_scatter_v",
    "comm_result_name": "result_name",
    "comm_result_text": "result_text",
    "comm_revoke": "Communicator.revoke",
    "comm_scan": "Communicator.scan",
    "comm_scatter": "Communicator.scatter",
    "comm_scatter_v": "Communicator.scatter_v",
    "comm_send": "Communicator.send",
    "comm_shrink": "Communicator.shrink",
    "comm_size": "Communicator.size",
    "comm_split": "Communicator.split",
    "comm_split_mesh": "Communicator.split_mesh",
    "comm_split_place": "Communicator.split_place",
    "comm_statistics": "Communicator.statistics",
    "comm_stream_of": "Communicator.stream",
    "comm_stream_sync": "Communicator.stream_sync",
    "comm_stream_wait_event": "stream_wait",
    "comm_stream_wait_request": "stream_wait",
    "comm_subset": "Communicator.subset",
    "comm_sync": "Communicator.sync",
    "comm_sync_all": "Communicator.sync_all",
    "comm_test": "Request.test",
    "comm_trace_dump": "Communicator.trace_dump",
    "comm_translate": "Communicator.translate",
    "comm_type_size": "type_size",
    "comm_version": "version",
    "comm_wait": "Request.wait",
    "comm_wait_all": "wait_all",
    "comm_wait_any": "wait_any",
    "comm_wait_some": "wait_some",
    "comm_window_create": "Communicator.window",
    "comm_window_fence": "Window.fence",
    "comm_window_flush": "Window.flush",
    "comm_window_free": "Window.free",
    "comm_window_pointer": "Window.part",
    "comm_window_signal": "Window.signal",
    "comm_window_wait_signal": "Window.wait_signal",
}


def headers():
    return {path.name: path.read_text() for path in Path(cs.get_include(), "commstream").glob("*.h")}


def exported():
    clean = {name: re.sub(r"/\*.*?\*/", "", text, flags=re.S) for name, text in headers().items()}
    return {found for text in clean.values() for found in re.findall(r"^COMM_(?:MUST|API)\s+[^;(]*?(\w+)\s*\(", text, re.M)}


def find(path):
    value = cs
    for part in path.split("."):
        value = getattr(value, part)
    return value


def test_every_function_has_a_form():
    assert len(exported()) > 100
    assert sorted(FORMS) == sorted(exported())


def test_every_form_is_there_and_names_its_function():
    for function, form in FORMS.items():
        text = inspect.getdoc(find(form)) or ""
        assert re.search(rf"\b{function}\b", text), f"{form}: its docstring does not name {function}"


def numbers(enum, prefix):
    """The numbers of an enum of the headers, by the names that Python has for them."""
    text = re.sub(r"/\*.*?\*/", "", " ".join(headers().values()), flags=re.S)
    body = re.search(rf"enum {enum}\s*{{(.*?)}};", text, re.S).group(1)
    return {name: int(value) for name, value in re.findall(rf"\b{prefix}(\w+)\s*=\s*(-?\d+)\b", body)}


def test_enums_are_those_of_the_headers():
    for enum, name, prefix in ((cs.Type, "comm_type", "COMM_"), (cs.Op, "", "COMM_"), (cs.Progress, "comm_progress_mode", "COMM_PROGRESS_"),
                               (cs.Notify, "comm_notify_mode", "COMM_NOTIFY_"), (cs.Order, "comm_order", "COMM_ORDER_"),
                               (cs.Place, "comm_place", "COMM_PLACE_"), (cs.Placement, "comm_placement", "COMM_PLACEMENT_"),
                               (cs.LogLevel, "comm_log_level", "COMM_LOG_")):
        assert {member.name: member.value for member in enum} == numbers(name, prefix)
    rows = re.findall(r"X\((\w+), (-?\d+), ", headers()["result.h"])
    assert {member.name: member.value for member in cs.Result} == {name: int(value) for name, value in rows}


# What Python has in another way: None, an exception, version().
NO_CONSTANTS = {"COMM_FOREVER", "COMM_DEFAULT_TIMEOUT", "COMM_NO_INDEX", "COMM_ROOT_FAILED", "COMM_VERSION", "COMM_VERSION_MAJOR",
                "COMM_VERSION_MINOR", "COMM_VERSION_PATCH"}


def test_every_constant_is_there():
    defined = dict(found for text in headers().values() for found in re.findall(r"^#define (COMM_\w+) +(\S.*)$", text, re.M))
    for name in set(defined) - NO_CONSTANTS:
        value = re.fullmatch(r"\(?(-?\d+)u?\)?", defined[name])
        assert hasattr(cs, name[5:]), f"{name} has no form in Python"
        assert not value or getattr(cs, name[5:]) == int(value.group(1)), name
    assert NO_CONSTANTS <= set(defined) and cs.ANY_TAG == 2 ** 32 - 1


def test_config_takes_every_field():
    body = re.search(r"struct comm_config \{(.*?)\n\};", headers()["open.h"], re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    fields = set(re.findall(r"(\w+);", body)) - {"size", "exchange_arg", "secret_bytes", "log_arg", "error_text", "error_text_bytes"}
    words = {"ranks" if word == "size" else word for word in inspect.signature(cs.open).parameters}
    assert words == {field[:-3] if field.endswith("_ns") else field for field in fields}


def test_public_things_have_docstrings_and_stubs():
    stub = ast.parse((Path(cs.__file__).parent / "_core.pyi").read_text())
    stubs = {node.name: {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)} for node in stub.body
             if isinstance(node, ast.ClassDef)}
    for name in ("Communicator", "Window", "Request", "Operator", "Event", "Plan", "Buckets", "Memory"):
        kind = getattr(cs._core, name)
        here = {member for member in vars(kind) if not member.startswith("__")}
        assert here <= stubs[name], f"{name} has no stub of {sorted(here - stubs[name])}"
        assert not {m for m in stubs[name] - here if not m.startswith("__")}, name
        for member in here:
            assert member.startswith("_") or inspect.getdoc(getattr(kind, member)), f"{name}.{member} has no docstring"
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert functions == {n for n, v in vars(cs._core).items() if inspect.isbuiltin(v)}
    for name, value in vars(cs).items():
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            assert inspect.getdoc(value), name


def test_all_has_every_public_name():
    """Type checkers take no other name as public, and the reference has no other."""
    import types
    here = {name for name, value in vars(cs).items() if not name.startswith("_") and not isinstance(value, types.ModuleType)}
    assert set(cs.__all__) == here and len(cs.__all__) == len(here)


def test_stubs_have_the_parameters_that_are_there():
    stub = ast.parse((Path(cs.__file__).parent / "_core.pyi").read_text())
    seen = 0
    for node in stub.body:
        for method in node.body if isinstance(node, ast.ClassDef) else []:
            plain = isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and not method.decorator_list
            if not plain:
                continue
            there = list(inspect.signature(getattr(getattr(cs._core, node.name), method.name)).parameters.values())[1:]
            words = [*method.args.posonlyargs, *method.args.args][1:]
            assert [word.arg for word in words] == [parameter.name for parameter in there], f"{node.name}.{method.name}"
            given = [parameter.default for parameter in there if parameter.default is not inspect.Parameter.empty]
            said = method.args.defaults
            assert len(said) == len(given), f"{node.name}.{method.name}"
            for default, value in zip(said, given):
                assert ast.unparse(default) == "..." or ast.literal_eval(default) == value, f"{node.name}.{method.name}: {value}"
            seen += 1
    assert seen > 50


def test_signatures_are_readable():
    assert str(inspect.signature(cs.Communicator.allreduce)) == "(self, /, input, output=None, op=1, type=None)"
    assert str(inspect.signature(cs.Request.wait)) == "(self, /, timeout=None)"


def test_a_copy_of_in_place_is_in_place():
    assert copy.deepcopy(cs.IN_PLACE) is cs.IN_PLACE and pickle.loads(pickle.dumps(cs.IN_PLACE)) is cs.IN_PLACE
