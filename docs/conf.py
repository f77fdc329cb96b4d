"""Configuration of the documentation."""

from fpsim import __version__

project = "fpsim"
author = "The fpsim developers"
copyright = "2026, The fpsim developers"
release = version = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
autodoc_typehints = "none"
autosummary_generate = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
# Links to other projects resolve only where their inventories can be fetched.
intersphinx_mapping = {}

html_theme = "pydata_sphinx_theme"
html_title = "fpsim"
html_show_sourcelink = False
