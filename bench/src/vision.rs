//! Tests that the colours of the charts differ for people with colour vision deficiency, by simulation.

use plotters::style::RGBColor;

use super::plots::{FORK, INK, OTHER, OURS, Pair, SPAWN};

/// Matrices of Machado, Oliveira and Fernandes (2009) for the complete lack of one kind of cone, for linear RGB.
const VISION: [(&str, [[f64; 3]; 3]); 4] = [
    ("no deficiency", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    ("protanopia", [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    (
        "deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    ("tritanopia", [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
];

/// A colour in Oklab, as somebody sees it.
fn seen(colour: RGBColor, matrix: &[[f64; 3]; 3]) -> [f64; 3] {
    let linear = |part: u8| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    let by = |matrix: &[[f64; 3]; 3], colour: [f64; 3]| {
        matrix.map(|row| row.iter().zip(colour).map(|(factor, part)| factor * part).sum::<f64>())
    };
    let rgb = by(matrix, [linear(colour.0), linear(colour.1), linear(colour.2)]).map(|part| part.clamp(0.0, 1.0));
    let cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ];
    let lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ];
    by(&lab, by(&cones, rgb).map(f64::cbrt))
}

/// The least distance of two of these colours, with the vision that has it.
fn nearest(colours: &[RGBColor]) -> (f64, &'static str) {
    let mut least = (f64::INFINITY, "");
    for (vision, matrix) in &VISION {
        for (index, one) in colours.iter().enumerate() {
            for other in &colours[index + 1..] {
                let (one, other) = (seen(*one, matrix), seen(*other, matrix));
                let distance = one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                least = if distance < least.0 { (distance, *vision) } else { least };
            }
        }
    }
    least
}

/// Five times the just noticeable difference, which is about 0.02.
const DISTANCE: f64 = 0.1;

#[test]
fn series_differ_for_people_with_colour_vision_deficiency() {
    let series = [OURS, FORK, SPAWN, OTHER, INK];
    for colours in [series.map(Pair::light), series.map(Pair::dark)] {
        let (distance, vision) = nearest(&colours);
        assert!(distance >= DISTANCE, "{distance:.3} with {vision}");
    }
    // Red and green of equal lightness, which the test must find.
    let (distance, vision) = nearest(&[RGBColor(190, 45, 10), RGBColor(104, 104, 0)]);
    assert!(distance < DISTANCE && vision == "deuteranopia", "{distance:.3} with {vision}");
}
