"""Build hook: what an editable install carries besides the path of the checkout."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StartUpHook(BuildHookInterface):
    """Install the start-up hook, but no copy of the templates, with ``pip install -e``.

    The wheel's own ``force-include`` would also copy ``kernels`` to site-packages, where edits in the
    checkout do not reach it; an editable install finds the templates beside the package.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Replace the files that an editable wheel includes by force; ``version`` is the wheel's kind."""
        if version == "editable":
            build_data["force_include_editable"] = {"pytensor_cl.pth": "pytensor_cl.pth"}
