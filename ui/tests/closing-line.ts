import type { FullResult, Reporter, TestCase, TestResult } from "@playwright/test/reporter";

/** Prints one summary line at the end. */
export default class ClosingLine implements Reporter {
  private last = new Map<string, TestResult["status"]>();
  private skipped: string[] = [];

  onTestEnd(test: TestCase, result: TestResult): void {
    this.last.set(test.id, result.status);
    if (result.status === "skipped") this.skipped.push(`SKIPPED: ${test.title}`);
  }

  onEnd(result: FullResult): void {
    const all = [...this.last.values()];
    const passed = all.filter((status) => status === "passed").length;
    const skipped = all.filter((status) => status === "skipped").length;
    const failed = all.length - passed - skipped;
    for (const line of this.skipped) console.log(line);
    if (all.length === 0 || (failed === 0 && result.status !== "passed")) console.log(`The test run was not completed: ${result.status}`);
    console.log(`${passed} passed, ${failed} failed`);
  }

  printsToStdio(): boolean {
    return true;
  }
}
