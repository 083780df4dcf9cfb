"""Find and render the Mako templates in ``kernels``."""

import hashlib
import inspect
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytensor_cl.codegen.rendered import load_or_render
from pytensor_cl.errors import TemplateError

if TYPE_CHECKING:
    from mako.lookup import TemplateLookup
    from mako.template import Template


class KernelSource(NamedTuple):
    """OpenCL C text of one or several kernels.

    `name`: unique to the text; the kernels in it are called `name` or ``name_<suffix>``; `source`: the kernels;
    `preambles`: functions that must precede the kernels; a program holds each text once; `options`: build options, for
    kernels in a program of their own; None: the kernels may share a program with others.
    """

    name: str
    source: str
    preambles: tuple[str, ...] = ()
    options: tuple[str, ...] | None = None


@cache
def _directory() -> Path:
    """``kernels`` inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


@cache
def _lookup() -> "TemplateLookup":
    from mako.lookup import TemplateLookup  # 60 ms that programs without a kernel save

    return TemplateLookup(directories=[str(_directory())], strict_undefined=True)


@cache
def _load(name: str) -> "tuple[Template, frozenset[str], frozenset[str]]":
    """Return the template, the arguments that it needs, and all that it accepts."""
    path = _directory() / f"{name}.mako"
    if not path.is_file():
        raise TemplateError(f"there is no kernel template {name!r} (looked for {path})")
    template = _lookup().get_template(f"/{name}.mako")
    parameters = inspect.signature(template.module.render_body).parameters.values()
    named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "context"]
    required = frozenset(p.name for p in named if p.default is p.empty)
    return template, required, frozenset(p.name for p in named)


def render(template: str, /, **args: object) -> str:
    """Render ``kernels/<template>.mako``.

    The template's ``<%page args="..."/>`` is its signature.

    Raises
    ------
    TemplateError
        The template does not exist, or `args` and its signature differ.
    """
    return load_or_render(_directory(), template, args, lambda: _render(template, args))


def _render(template: str, args: dict[str, object]) -> str:
    loaded, required, accepted = _load(template)
    missing, extra = required - args.keys(), args.keys() - accepted
    if missing or extra:
        raise TemplateError(f"kernels/{template}.mako: missing {sorted(missing)}, unexpected {sorted(extra)}")
    return loaded.render(**args)


def kernel_source(template: str, /, *, preambles: tuple[str, ...] = (), **args: object) -> KernelSource:
    """Render a template under a name that is unique to the template and its arguments.

    The template receives the name as its argument ``name``.
    """
    draft = render(template, name="KERNEL_NAME", **args)
    text = "\n".join((*preambles, draft))
    digest = hashlib.blake2s(text.encode(), digest_size=6).hexdigest()
    name = f"{template.replace('/', '_')}_{digest}"
    return KernelSource(name, draft.replace("KERNEL_NAME", name), preambles)
