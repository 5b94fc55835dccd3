// Every screen, in both themes and at the width of a phone: nothing axe complains of, nothing wider than the screen, and
// a picture of each in test-results/.

import AxeBuilder from "@axe-core/playwright";
import { expect, signIn, test } from "./cluster";

const LOOKS = {
  light: { theme: "light", width: 1280, height: 860 },
  dark: { theme: "dark", width: 1280, height: 860 },
  phone: { theme: "light", width: 390, height: 844 },
} as const;

for (const [look, { theme, width, height }] of Object.entries(LOOKS)) {
  test(`every screen in ${look}`, async ({ page, cluster }) => {
    test.setTimeout(600_000);
    await cluster.clear();
    const failed = await cluster.submit({ name: "broken", command: "echo 'CUDA out of memory' >&2; exit 1", gpus: 1 });
    await cluster.until(failed, "failed");
    const runs = await cluster.submit({ name: "resnet50", command: "for i in $(seq 1 200); do echo step $i loss 0.$i; done; sleep 600", gpus: 6 });
    await cluster.until(runs, "running");
    const waits = await cluster.submit({ name: "llama", command: "true", gpus: 8 });

    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: theme });
    const look_at = async (name: string) => {
      await expect(page.locator(".loading")).toHaveCount(0);
      await page.waitForTimeout(300);
      await page.screenshot({ path: `test-results/screens/${name}-${look}.png` });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(wide, `${name} is wider than the screen`).toBeLessThanOrEqual(0);
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(violations.map((v) => `${name}: ${v.id} at ${v.nodes.map((n) => n.target.join(" ")).join("; ")}`)).toEqual([]);
    };
    await page.goto("/");
    await expect(page.getByLabel("Password")).toBeVisible();
    await look_at("sign-in");
    await signIn(page);
    const screens: [string, string][] = [
      ["home", "/"],
      ["jobs", "/jobs"],
      ["job-running", `/jobs/${runs}`],
      ["job-waiting", `/jobs/${waits}`],
      ["job-failed", `/jobs/${failed}`],
      ["job-logs", `/jobs/${runs}?tab=logs`],
      ["job-tasks", `/jobs/${runs}?tab=tasks`],
      ["job-events", `/jobs/${runs}?tab=events`],
      ["job-file", `/jobs/${runs}?tab=file`],
      ["submit", "/submit"],
      ["submit-file", "/submit?tab=text"],
      ["queue", "/queue"],
      ["cluster", "/cluster"],
      ["vcs", "/vcs"],
      ["usage", "/usage"],
      ["admin-users", "/admin"],
      ["admin-nodes", "/admin?tab=nodes"],
      ["admin-policy", "/admin?tab=policy"],
      ["admin-audit", "/admin?tab=audit"],
      ["account", "/me"],
      ["nothing", "/no/such/page"],
    ];
    for (const [name, path] of screens) {
      await page.goto(path);
      await expect(page.locator("main h1, main .empty").first()).toBeVisible();
      await look_at(name);
    }
    await page.goto("/");
    await page.locator("h1").click();
    await page.keyboard.press("?");
    await expect(page.getByRole("dialog")).toBeVisible();
    await look_at("keys");
    await cluster.clear();
  });
}
