// Jobs that interleave their stages on one GPU: what the page shows of their group, against real jobs behind real gates.

import AxeBuilder from "@axe-core/playwright";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { expect, test } from "@playwright/test";
import { serve, signIn, watch } from "./cluster";

const TRAINER = resolve("tests/stages.py");
const LOOKS = {
  light: { colorScheme: "light", width: 1280 },
  dark: { colorScheme: "dark", width: 1280 },
  phone: { colorScheme: "light", width: 390 },
} as const;

interface Job {
  attempts: { gates?: { planned_period: number; measured_period: number | null; group?: { planned_efficiency: number; measured_efficiency: number; in_turn_efficiency: number } } }[];
}

test("the page of a job behind stage gates shows its group, planned and measured", async ({ browser }) => {
  const data = mkdtempSync(join(tmpdir(), "dovetail-gates-"));
  const { cluster, server } = await serve(["up", "--virtual-gpus", "1", "--policy", "muri-s"], data);
  try {
    await cluster.hasNodes(1);
    const submit = (name: string, [data, gpu, net]: [number, number, number]) =>
      cluster.submit({ name, gpus: 1, expected_s: 3600, stages_s: { data: data / 1e3, gpu: gpu / 1e3, net: net / 1e3 }, command: `exec python3 ${TRAINER} ${data} ${gpu} ${net}` });
    const loads = await submit("loads-much", [160, 40, 0]);
    const computes = await submit("computes-much", [40, 140, 20]);
    const gates = async () => ((await cluster.job(loads)) as unknown as Job).attempts.at(-1)?.gates;
    await expect.poll(async () => (await gates())?.measured_period ?? 0, { timeout: 90_000 }).toBeGreaterThan(150_000);
    const { planned_period, measured_period, group } = (await gates())!;
    expect(planned_period).toBe(200_000);
    expect(measured_period).toBeLessThan(400_000);
    expect(group!.planned_efficiency).toBeCloseTo(0.5, 2);
    expect(group!.in_turn_efficiency).toBeCloseTo(0.25, 2);

    for (const [look, { width, colorScheme }] of Object.entries(LOOKS)) {
      const context = await browser.newContext({ baseURL: cluster.url, ignoreHTTPSErrors: true, viewport: { width, height: 860 }, colorScheme });
      const page = await context.newPage();
      const problems = await watch(page, cluster.url);
      await signIn(page);
      await page.goto(`/jobs/${loads}`);
      const panel = page.locator(".panel", { has: page.getByRole("heading", { name: "Stage gates" }) });
      await expect(panel).toContainText("planned 200.0 ms");
      await expect(panel).toContainText("400.0 ms");
      await expect(panel).toContainText("planned 0.500, one after the other 0.250");
      // One row for each job, with what is planned above what is measured.
      const rows = panel.getByRole("img");
      await expect(rows).toHaveCount(2);
      await expect(rows.nth(0)).toHaveAttribute("aria-label", /data \d+\.0 ms, measured \d+\.\d ms; GPU/);
      for (const row of [0, 1]) expect(await rows.nth(row).locator(".lane").count()).toBe(2);
      const lengths = await rows.nth(0).locator("g.stage-data rect").evaluateAll((rects) => rects.map((r) => Number(r.getAttribute("width"))));
      expect(lengths.length).toBeGreaterThanOrEqual(2);
      await panel.scrollIntoViewIfNeeded();
      await panel.screenshot({ path: `test-results/screens/job-gates-${look}.png` });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(wide, `wider than the screen in ${look}`).toBeLessThanOrEqual(0);
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(violations.map((v) => `${v.id} at ${v.nodes.map((n) => n.target.join(" ")).join("; ")}`)).toEqual([]);
      await panel.getByRole("link", { name: /computes-much/ }).click();
      await expect(page).toHaveURL(new RegExp(`/jobs/${computes}$`));
      await expect(page.getByRole("heading", { name: "Stage gates" })).toBeVisible();
      expect(problems).toEqual([]);
      await context.close();
    }
    await cluster.clear();
  } finally {
    await cluster.api.dispose();
    await server.end();
    rmSync(data, { recursive: true, force: true });
  }
});
