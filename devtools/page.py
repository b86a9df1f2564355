"""The frame of a page that stands beside the book, in a folder below its top: sheet and slides."""

FRAME = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="../_static/favicon.svg">
{styles}
<script>MathJax = {maths};</script>
{scripts}
</head>
<body>
{body}
</body>
</html>
"""
MATHJAX = "vendor/mathjax/tex-chtml.js"


def whole_page(title, body, styles, scripts=(), maths="{options: {enableMenu: false}}"):
    """A page with formulas. Styles and scripts are files of the book's _static folder."""
    return FRAME.format(
        title=title,
        body=body,
        maths=maths,
        styles="\n".join(f'<link rel="stylesheet" href="../_static/{name}">' for name in styles),
        scripts="\n".join(
            f'<script defer src="../_static/{name}"></script>' for name in (MATHJAX, *scripts)
        ),
    )
