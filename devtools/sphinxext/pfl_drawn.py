"""``{drawn}``: a drawn figure in a page, with a number that one can cite and a caption.

    ```{drawn} round
    :name: fig-round
    One round of federated averaging.
    ```

and, in the text, ``{numref}`fig-round` ``. The drawing stands in the page itself, not in an image
beside it: so it follows the page's theme, and its words can be found and read out.
"""

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from pfl_lib.book import draw


class Drawn(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"name": directives.unchanged_required}

    def run(self):
        name = self.arguments[0]
        if name not in draw.FIGURES:
            raise self.error(f"no drawn figure {name!r}; there are: {', '.join(draw.FIGURES)}")
        if "name" not in self.options:
            raise self.error(f"{name}: give the figure a :name:, so that the text can refer to it")
        parsed = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, parsed)
        if len(parsed) != 1 or not isinstance(parsed[0], nodes.paragraph):
            raise self.error(f"{name}: the caption must be one paragraph")
        picture = nodes.raw("", draw.html(name), format="html")
        caption = nodes.caption(parsed[0].rawsource, "", *parsed[0].children)
        figure = nodes.figure("", picture, caption)
        self.set_source_info(figure)
        self.set_source_info(caption)
        self.add_name(figure)
        return [figure]


def setup(app):
    app.add_directive("drawn", Drawn)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
