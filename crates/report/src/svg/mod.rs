//! A small SVG writer: figures, a canvas, scales with readable ticks, and one style for light and dark.
//!
//! Colours live in classes only. Inlined in a page, a figure follows the page's custom properties; written to a file
//! of its own, it carries a style with a background and a dark variant.

mod canvas;
mod frame;
mod scale;
mod style;
mod text;

pub use canvas::escape;
pub(crate) use canvas::{Anchor, Canvas, PathData, num};
pub(crate) use frame::{
    Axis, Frame, LegendEntry, Mark, X_AXIS_HEIGHT, Y_LABEL_HEIGHT, frame, legend, line_class, x_axis,
};
pub use scale::AxisKind;
pub(crate) use scale::{Scale, ticks};
pub(crate) use style::{COLOURS, JOB_COLOURS, page_style};
pub(crate) use text::{fit, text_width, wrap};

/// Width of every figure in user units; figures scale to the available width.
pub(crate) const WIDTH: f64 = 540.0;

/// A finished drawing with its title and caption.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Short name, used as a file name without extension.
    pub name: String,
    /// The heading.
    pub title: String,
    /// One or two sentences on what is drawn and how to read it.
    pub caption: String,
    width: f64,
    height: f64,
    body: String,
}

impl Figure {
    pub(crate) fn new(name: &str, title: &str, caption: &str, canvas: Canvas) -> Self {
        let (width, height, body) = canvas.finish();
        Self {
            name: name.into(),
            title: title.into(),
            caption: caption.into(),
            width,
            height,
            body,
        }
    }

    /// Returns the drawing for a page that defines the colours.
    pub fn inline(&self) -> String {
        format!(
            "<svg class=\"dv\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            num(self.width),
            num(self.height),
            escape(&format!("{}. {}", self.title, self.caption)),
            self.body
        )
    }

    /// Returns a complete SVG file with heading, caption, style and background.
    pub fn svg(&self) -> String {
        const PAD: f64 = 16.0;
        let lines = wrap(&self.caption, self.width, 11.0);
        let body_top = PAD + 26.0;
        let caption_top = body_top + self.height + 16.0;
        let (width, height) = (
            self.width + 2.0 * PAD,
            caption_top + 15.0 * lines.len() as f64 + PAD - 8.0,
        );
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"dv\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
             role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n<style>{}</style>\n\
             <rect class=\"bg\" width=\"{w}\" height=\"{h}\"/>\n<text class=\"h\" x=\"{}\" y=\"{}\">{}</text>\n\
             <g transform=\"translate({} {})\">{}</g>\n",
            escape(&self.title),
            escape(&self.caption),
            style::file_style(),
            num(PAD),
            num(PAD + 12.0),
            escape(&fit(&self.title, self.width, 16.0)),
            num(PAD),
            num(body_top),
            self.body,
            w = num(width),
            h = num(height),
        );
        for (i, line) in lines.iter().enumerate() {
            let y = caption_top + 15.0 * i as f64;
            out.push_str(&format!(
                "<text class=\"m sm\" x=\"{}\" y=\"{}\">{}</text>\n",
                num(PAD),
                num(y),
                escape(line)
            ));
        }
        out.push_str("</svg>\n");
        out
    }
}
