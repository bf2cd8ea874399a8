//! Counting tests from what each kind of runner prints.

use std::collections::HashMap;
use std::ops::AddAssign;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl Tally {
    pub const PASSED: Tally = Tally { passed: 1, failed: 0 };
    pub const FAILED: Tally = Tally { passed: 0, failed: 1 };

    pub fn of_one(success: bool) -> Tally {
        if success { Tally::PASSED } else { Tally::FAILED }
    }

    /// A run that ended badly has failed even if no single test of it did: it may not have come to them.
    pub fn with_exit(mut self, success: bool) -> Tally {
        if !success && self.failed == 0 {
            self.failed = 1;
        }
        self
    }

    /// The last line `N passed, N failed` of our own programs.
    pub fn of_last_line(output: &str) -> Option<Tally> {
        output.lines().rev().find(|line| !line.trim().is_empty()).and_then(passed_failed)
    }

    /// All `test result:` lines of `cargo test`, and how many tests were ignored.
    pub fn of_cargo_test(output: &str) -> (Tally, u64) {
        let mut tally = Tally::default();
        let mut ignored = 0;
        for line in output.lines().filter(|line| line.starts_with("test result:")) {
            tally += Tally { passed: number_before(line, " passed"), failed: number_before(line, " failed") };
            ignored += number_before(line, " ignored");
        }
        (tally, ignored)
    }

    /// `ctest -V`. A program that counts its own tests gives its count, any other is one test.
    pub fn of_ctest(output: &str) -> Tally {
        let mut tally = Tally::default();
        let mut own: HashMap<&str, Tally> = HashMap::new();
        for line in output.lines() {
            if let Some((number, text)) = line.split_once(": ")
                && number.bytes().all(|byte| byte.is_ascii_digit())
            {
                if let Some(counted) = passed_failed(text) {
                    own.insert(number, counted);
                }
            } else if let Some(number) = ctest_result(line) {
                let success = line.contains("   Passed ");
                tally += match own.remove(number) {
                    None => Tally::of_one(success),
                    Some(counted) => counted.with_exit(success),
                };
            }
        }
        tally
    }

    /// What the failed tests of `ctest -V` printed, and the lines in which tests say what they left out.
    pub fn words_of_ctest(output: &str) -> (String, Vec<String>) {
        let mut failed = String::new();
        let mut left_out = Vec::new();
        let mut own: HashMap<&str, Vec<&str>> = HashMap::new();
        for line in output.lines() {
            if let Some((number, text)) = line.split_once(": ")
                && number.bytes().all(|byte| byte.is_ascii_digit())
            {
                own.entry(number).or_default().push(text);
            } else if let Some(number) = ctest_result(line) {
                let words = own.remove(number).unwrap_or_default();
                let name = line.split_once(&format!("#{number}: ")).map_or(line, |(_, rest)| rest);
                let name = name.split(' ').next().unwrap_or(name);
                let skipped = words.iter().filter(|text| text.contains(" left out: "));
                left_out.extend(skipped.map(|text| format!("{name}: {text}")));
                if !line.contains("   Passed ") {
                    failed.push_str(&format!("{line}\n{}\n", words.join("\n")));
                }
            }
        }
        (failed, left_out)
    }

    /// Python's unittest, and how many tests were skipped.
    pub fn of_unittest(output: &str) -> (Tally, u64) {
        let ran = output.lines().rev().find_map(|line| line.strip_prefix("Ran ")).map_or(0, leading_number);
        let verdict = output.lines().rev().find(|line| line.starts_with("OK") || line.starts_with("FAILED"));
        let part = |name: &str| {
            verdict
                .and_then(|line| line.split_once(&format!("{name}=")))
                .map_or(0, |(_, rest)| leading_number(rest))
        };
        let (failed, skipped) = (part("failures") + part("errors"), part("skipped"));
        (Tally { passed: ran.saturating_sub(failed + skipped), failed }, skipped)
    }
}

fn passed_failed(line: &str) -> Option<Tally> {
    let (passed, rest) = line.trim().split_once(" passed, ")?;
    let failed = rest.strip_suffix(" failed")?;
    Some(Tally { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
}

/// The test's number in ` 3/12 Test  #3: name ......   Passed    0.01 sec`.
fn ctest_result(line: &str) -> Option<&str> {
    let (progress, rest) = line.split_once(" Test ")?;
    progress.trim().split_once('/')?;
    rest.trim_start().strip_prefix('#')?.split_once(':').map(|(number, _)| number)
}

fn leading_number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

fn number_before(line: &str, word: &str) -> u64 {
    let Some(at) = line.find(word) else { return 0 };
    line[..at].rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(passed: u64, failed: u64) -> Tally {
        Tally { passed, failed }
    }

    #[test]
    fn cargo_test_is_summed_over_its_binaries() {
        let output = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\n\
                      test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(Tally::of_cargo_test(output), (tally(5, 4), 1));
        assert_eq!(Tally::of_cargo_test("error: could not compile").0.with_exit(false), tally(0, 1));
    }

    #[test]
    fn ctest_takes_the_programs_own_counts() {
        let output = "\
test 1
1: one ... ok
1: 5 passed, 0 failed
1/4 Test #1: tests/c/one ......................   Passed    0.01 sec
2: no count here
2/4 Test #2: examples-c/two ...................   Passed    0.02 sec
3: 4 passed, 2 failed
3/4 Test #3: tests/c/three ....................***Failed    0.02 sec
4: it crashes
4/4 Test #4: tests/c/four .....................***Exception: SegFault  0.10 sec
50% tests passed, 2 tests failed out of 4
The following tests FAILED:
\t  3 - tests/c/three (Failed)
";
        assert_eq!(Tally::of_ctest(output), tally(5 + 1 + 4, 2 + 1));
        let (failed, left_out) = Tally::words_of_ctest(output);
        assert!(failed.contains("it crashes") && failed.contains("4 passed, 2 failed"));
        assert!(!failed.contains("no count here") && !failed.contains("one ... ok"));
        assert_eq!(left_out, Vec::<String>::new());
        let skipping = "1: a ... left out: no GPU\n1/1 Test #1: tests/c/one ....   Passed    0.01 sec\n";
        assert_eq!(Tally::words_of_ctest(skipping).1, ["tests/c/one: a ... left out: no GPU"]);
        assert_eq!(
            Tally::of_ctest("1: 0 passed, 0 failed\n1/1 Test #1: x ...   Passed    0.01 sec\n"),
            tally(0, 0)
        );
        let late = "12: 4 passed, 0 failed\n12/12 Test #12: x .....***Failed   0.02 sec\n";
        assert_eq!(Tally::of_ctest(late), tally(4, 1));
    }

    #[test]
    fn unittest_is_read_in_both_outcomes() {
        let good = "test_a ... ok\n\n-----\nRan 7 tests in 0.100s\n\nOK (skipped=2)\n";
        assert_eq!(Tally::of_unittest(good), (tally(5, 0), 2));
        let bad = "Ran 7 tests in 0.100s\n\nFAILED (failures=1, errors=2)\n";
        assert_eq!(Tally::of_unittest(bad), (tally(4, 3), 0));
        assert_eq!(Tally::of_unittest("Traceback\n").0.with_exit(false), tally(0, 1));
    }

    #[test]
    fn the_last_line_counts() {
        assert_eq!(Tally::of_last_line("1 passed, 1 failed\n12 passed, 3 failed\n\n"), Some(tally(12, 3)));
        assert_eq!(Tally::of_last_line("12 passed, 3 failed\nand then it crashed"), None);
        assert_eq!(Tally::of_last_line(""), None);
    }
}
