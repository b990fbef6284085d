"""Sphinx: `make docs` builds the site into docs/_build/html; neither that nor reading it
needs the network (formulas become MathML, which browsers draw themselves)."""

import re
from html import unescape
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import folklearn

project = "folklearn"
author = "The folklearn developers"
project_copyright = author
version = release = folklearn.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "decisions/README.md"]
templates_path = ["_templates"]
highlight_language = "none"
default_role = "py:obj"

autosummary_generate = True
autodoc_typehints = "none"  # the words in the docstrings say more
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the template lists them
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "folklearn"
html_static_path = ["_static"]
html_css_files = ["folklearn.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_math_renderer = "mathml"
html_sidebars = {"tutorials/*": []}  # room for two columns of code

_MATHML = "{http://www.w3.org/1998/Math/MathML}"
_ACCENTS = ("ˆ", "~")
_SECTIONS = ("Parameters", "Attributes")


def describe_parameters(app, what, name, obj, options, lines):
    """Let ``name : what it is`` be a description: numpydoc would take it for a type."""
    section, described = "", []
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and below == "-" * len(line):
            section = line
        entry = re.fullmatch(r"(\w[\w, ]*) : (.*)", line)
        if section in _SECTIONS and entry:
            described += [entry[1], f"    {entry[2]}"]
        else:
            described.append(line)
    lines[:] = described


def make_plain(app, what, name, obj, options, lines):
    """Let ``|x|`` be a norm in running text, and the path of a theory page a link to it."""
    formula, plain = False, []
    for line in lines:
        if line.lstrip().startswith(".. math::"):
            formula = True
        elif line and not line[0].isspace():
            formula = False
        plain.append("\0" + line if formula or line.lstrip().startswith((">>>", "...")) else line)
    parts = re.split(r"(\0[^\n]*|``.*?``|`[^`]*`)", "\n".join(plain), flags=re.S)
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    text = re.sub(r"docs/theory/([\w-]+)\.md", r":doc:`/theory/\1`", "".join(parts))
    lines[:] = text.replace("\0", "").split("\n")


def skip_what_others_wrote(app, what, name, obj, skip, options):
    """Leave out what a class inherits from scikit-learn and River: they document it."""
    member = getattr(obj, "fget", obj)
    home = getattr(member, "__module__", None) or "folklearn"
    return True if home.partition(".")[0] in ("river", "sklearn") else None


ElementTree.register_namespace("", _MATHML[1:-1])


def _mathml(tex: str, block: bool) -> str:
    # Brackets of MathML stretch by themselves, and the converter knows one kind of dots.
    tex = re.sub(r"\\Big(?![a-zA-Z])", "", tex).replace(r"\dots", r"\ldots")
    mathml = "".join(tex2mathml(tex, as_block=block))
    mathml = re.sub(r"&(?!lt;|gt;|amp;)\w+;", lambda entity: unescape(entity[0]), mathml)
    root = ElementTree.fromstring(mathml)
    for node in root.iter(f"{_MATHML}munderover"):
        base, below, above = node
        if above.text in _ACCENTS:  # the converter puts the index of an accented letter below it
            node.tag = f"{_MATHML}msub"
            node[:] = [ElementTree.Element(f"{_MATHML}mover", accent="true"), below]
            node[0][:] = [base, above]
    return ElementTree.tostring(root, encoding="unicode")


def inline_formula(writer, node):
    writer.body.append(f'<span class="math">{_mathml(node.astext(), False)}</span>')
    raise nodes.SkipNode


def displayed_formula(writer, node):
    writer.body.append(f'<div class="math">{_mathml(node.astext(), True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    app.connect("autodoc-process-docstring", describe_parameters, priority=100)
    app.connect("autodoc-process-docstring", make_plain, priority=110)
    app.connect("autodoc-skip-member", skip_what_others_wrote)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
