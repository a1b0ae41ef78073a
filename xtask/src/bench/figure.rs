//! What was measured, beside its goal.

use std::fmt::Write;

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// Not more.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
    /// What the same thing does that was measured twice.
    Between(f64, f64),
    /// There is none.
    None,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) goal: Goal,
}

// === impl Figure ===

impl Figure {
    pub(super) fn new(name: impl Into<String>, value: f64, unit: &'static str, goal: Goal) -> Self {
        Self { name: name.into(), value, unit, goal }
    }

    /// Whether it is as it should be; `None` where nothing is asked for.
    fn is_met(&self) -> Option<bool> {
        match self.goal {
            Goal::AtMost(goal) => Some(self.value <= goal),
            Goal::AtLeast(goal) => Some(self.value >= goal),
            Goal::Between(low, high) => Some((low..=high).contains(&self.value)),
            Goal::None => None,
        }
    }
}

/// All figures with their goals and verdicts.
pub(super) fn table(figures: &[Figure]) -> String {
    let mut out = format!("{:<72}{:>10} {:<8}{:<18}verdict\n", "figure", "measured", "", "goal");
    for figure in figures {
        let goal = match figure.goal {
            Goal::AtMost(goal) => format!("<= {goal}"),
            Goal::AtLeast(goal) => format!(">= {goal}"),
            Goal::Between(low, high) => format!("{low:.3} to {high:.3}"),
            Goal::None => "-".to_owned(),
        };
        let verdict = match figure.is_met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "-",
        };
        let Figure { name, value, unit, .. } = figure;
        // Writing to a string does not fail.
        let _ = writeln!(out, "{name:<72}{value:>10.3} {unit:<8}{goal:<18}{verdict}");
    }
    out
}

/// The middle one.
pub(super) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_measured_meets_no_goal() {
        for goal in [Goal::AtMost(1.0), Goal::AtLeast(0.0), Goal::Between(0.0, 2.0)] {
            assert_eq!(Figure::new("x", f64::NAN, "", goal).is_met(), Some(false));
        }
        assert_eq!(Figure::new("x", 1.0, "", Goal::None).is_met(), None);
    }
}
