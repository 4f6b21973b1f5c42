import os
from tests.e2e.test_openclaw import *  # noqa
from tests.e2e.test_openclaw import pytestmark
from tests.e2e.serving import Serving
import pytest
@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    one = Serving(tmp_path_factory.mktemp("serve") / "run", "live.batch_turns=4", *os.environ.get("TRY","").split())
    try:
        one.wait_for("ready: talk to")
        yield one
    finally:
        (open("/tmp/oc/work/serve.lines","w")).write("\n".join(one.lines))
        one.stop()
