//! Everything that a power cut may leave, one outcome after the other.

/// Which of the sectors, lengths and names that no sync covers survive a power cut: the answers to one question after the other, in
/// all combinations. What is asked may depend on the answers before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CrashChoices {
    answers: Vec<bool>,
    asked: usize,
}

impl CrashChoices {
    /// Whether the next one survives.
    pub(super) fn survives(&mut self) -> bool {
        if self.asked == self.answers.len() {
            self.answers.push(false);
        }
        self.asked += 1;
        self.answers[self.asked - 1]
    }

    /// Goes on to the next outcome; `false` if that was the last one.
    pub fn advance(&mut self) -> bool {
        self.answers.truncate(std::mem::take(&mut self.asked));
        while self.answers.last() == Some(&true) {
            self.answers.pop();
        }
        match self.answers.last_mut() {
            Some(last) => {
                *last = true;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_come_once_also_if_questions_depend_on_answers() {
        let mut choices = CrashChoices::default();
        let mut all = Vec::new();
        loop {
            let first = choices.survives();
            let second = if first { Some(choices.survives()) } else { None };
            all.push((first, second, choices.survives()));
            if !choices.advance() {
                break;
            }
        }
        let expected = [
            (false, None, false),
            (false, None, true),
            (true, Some(false), false),
            (true, Some(false), true),
            (true, Some(true), false),
            (true, Some(true), true),
        ];
        assert_eq!(all, expected);
        assert_eq!(choices, CrashChoices::default());
    }
}
