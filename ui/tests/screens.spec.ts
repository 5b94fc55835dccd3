// Every screen, in both themes and at the width of a phone: no violations of axe, nothing wider than the screen, and a
// screenshot of each in test-results/.

import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";
import { resolve } from "node:path";
import { type Cluster, PASSWORD, expect, signIn, test } from "./cluster";

const LOOKS = {
  light: { theme: "light", width: 1280, height: 860 },
  dark: { theme: "dark", width: 1280, height: 860 },
  phone: { theme: "light", width: 390, height: 844 },
} as const;

const LONG = "a-name-that-is-made-of-every-setting-lr-0.0003-batch-4096-warmup-2000-seed-17";
const TRAINER = resolve("../examples/trainers/linear.py");

interface Scene {
  failed: number;
  training: number;
  running: number;
  waiting: number;
}

let scene: Scene | undefined;

/** A small cluster: virtual clusters with guarantees, and running, waiting and failed jobs with names of all lengths. */
async function setUp(cluster: Cluster): Promise<Scene> {
  if (scene) return scene;
  await cluster.clear();
  const vc = (guaranteed_gpus: number, more = {}) => ({ guaranteed_gpus, most_borrowed: null, user_cap_gpus: null, max_priority: null, everyone: "member", ...more });
  const vcs = { default: vc(1), vision: vc(4), language: vc(2, { user_cap_gpus: 4 }), "speech-recognition-and-synthesis": vc(1, { everyone: "none", max_priority: 10 }) };
  const put = await cluster.api.put("/api/v1/vcs", { data: { mode: "quota", vcs, cells: null } });
  expect(put.ok(), await put.text()).toBe(true);
  const users = [
    { name: "ann", email: "ann@example.org", roles: { vision: "administrator", language: "viewer" } },
    { name: "bertrand.de.la.tour.et.du.moulin", email: "bertrand.de.la.tour@laboratoire.example.org", roles: { vision: "member" } },
  ];
  for (const user of users) await cluster.api.post("/api/v1/users", { data: { ...user, password: PASSWORD } });
  for (const seed of [1, 2, 3, 4, 5, 6, 7, 8]) await cluster.submit({ name: `sweep-${seed}`, command: "true", gpus: 1, labels: { team: "red" } });
  const failed = await cluster.submit({ name: "resnet-152", tenant: "vision", command: "echo epoch 1; echo 'torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB' >&2; exit 1", gpus: 1 });
  await cluster.until(failed, "failed");
  const training = await cluster.submit({ name: "linear-model", command: `python3 ${TRAINER} --steps 4000 --pause 0.1`, gpus: 1 });
  const running = await cluster.submit({ name: "resnet50", tenant: "vision", command: "for i in $(seq 1 200); do echo step $i of 200, loss 0.$((1000 - i)); done; sleep 600", gpus: 4, expected_s: 1200, labels: { team: "red", paper: "draft-3" } });
  const other = await cluster.submit({ name: "llama-pretrain", tenant: "language", command: "sleep 600", gpus: 2, expected_s: 900 });
  for (const id of [training, running, other]) await cluster.until(id, "running");
  const waiting = await cluster.submit({ name: "llama-finetune", tenant: "language", command: "true", gpus: 2, expected_s: 600 });
  await cluster.submit({ name: LONG, tenant: "language", command: "true", gpus: 1, expected_s: 300 });
  scene = { failed, training, running, waiting };
  return scene;
}

for (const [look, { theme, width, height }] of Object.entries(LOOKS)) {
  test(`every screen in ${look}`, async ({ page, cluster }) => {
    test.setTimeout(600_000);
    const { failed, training, running, waiting } = await setUp(cluster);
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: theme });
    const capture = async (name: string) => {
      await expect(page.locator(".loading, .checking")).toHaveCount(0);
      await page.waitForTimeout(250);
      await page.screenshot({ path: `test-results/screens/${name}-${look}.png` });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      expect(wide, `${name} is wider than the screen`).toBeLessThanOrEqual(0);
      const { violations } = await new AxeBuilder({ page }).analyze();
      expect(violations.map((v) => `${name}: ${v.id} at ${v.nodes.map((n) => n.target.join(" ")).join("; ")}`)).toEqual([]);
    };
    await page.goto("/");
    await expect(page.getByLabel("Password")).toBeVisible();
    await capture("sign-in");
    await signIn(page);
    const screens: [string, string][] = [
      ["home", "/"],
      ["jobs", "/jobs"],
      ["jobs-none", "/jobs?q=no+such+name&state=running%2Cstarting%2Cstopping&user=ann"],
      ["job-running", `/jobs/${running}`],
      ["job-progress", `/jobs/${training}`],
      ["job-waiting", `/jobs/${waiting}`],
      ["job-long-name", `/jobs/${waiting + 1}`],
      ["job-failed", `/jobs/${failed}`],
      ["job-logs", `/jobs/${running}?tab=logs`],
      ["job-tasks", `/jobs/${running}?tab=tasks`],
      ["job-events", `/jobs/${running}?tab=events`],
      ["job-file", `/jobs/${running}?tab=file`],
      ["submit", `/submit?clone=${waiting}`],
      ["submit-file", "/submit?tab=text"],
      ["queue", "/queue"],
      ["cluster", "/cluster"],
      ["cluster-vc", "/cluster?by=vc"],
      ["cluster-health", "/cluster?by=health"],
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
      await capture(name);
    }
    await dialogs(page, running, capture);
    if (width < 760) {
      await page.goto("/");
      await page.getByRole("button", { name: "Menu" }).click();
      await capture("menu");
    }
  });
}

/** Captures dialogs. */
async function dialogs(page: Page, running: number, capture: (name: string) => Promise<void>): Promise<void> {
  const open = async (name: string, path: string, button: string) => {
    await page.goto(path);
    await page.getByRole("button", { name: button, exact: true }).first().click();
    await expect(page.getByRole("dialog")).toBeVisible();
    if (name === "dialog-vc") {
      await page.getByRole("dialog").getByLabel("Guaranteed GPUs").fill("1");
      await expect(page.locator(".diff")).toBeVisible();
    }
    await capture(name);
  };
  await open("dialog-stop", `/jobs/${running}`, "Stop");
  await open("dialog-vc", "/vcs", "Edit vision");
  await open("dialog-vcs", "/vcs", "Edit all");
  await open("dialog-user", "/admin", "Edit ann");
  await open("dialog-token", "/me", "New token");
  await page.goto("/");
  await page.locator("h1").click();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toBeVisible();
  await capture("keys");
}

test("cells are drawn as trees, in use and lent", async ({ page, cluster }) => {
  await cluster.clear();
  scene = undefined;
  const nodes: { name: string }[] = await (await cluster.api.get("/api/v1/nodes")).json();
  const cells = `
physicalCluster:
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
${nodes.map((node) => `  - {cellType: NODE, cellAddress: ${node.name}}`).join("\n")}
virtualClusters:
  default: {virtualCells: [{cellType: NODE.PAIR, cellNumber: 1}]}
  vision: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
`;
  const put = await cluster.api.put("/api/v1/vcs", { data: { mode: "cells", vcs: {}, cells } });
  expect(put.ok(), await put.text()).toBe(true);
  const own = await cluster.submit({ name: "detector", tenant: "vision", command: "sleep 600", gpus: 3 });
  const borrower = await cluster.submit({ name: "borrower", tenant: "vision", priority: -1, command: "sleep 600", gpus: 4 });
  for (const id of [own, borrower]) await cluster.until(id, "running");
  await signIn(page);
  await page.goto("/vcs");
  const panel = page.locator(".vc-grid .panel").filter({ hasText: "vision" });
  await expect(panel).toContainText("3 of 4 guaranteed GPUs in use");
  await expect(panel).toContainText("borrowed");
  await expect(panel.locator(".cell-tree")).toContainText("NODE");
  for (const [look, { theme, width, height }] of Object.entries(LOOKS)) {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: theme });
    await page.waitForTimeout(250);
    await page.screenshot({ path: `test-results/screens/vcs-cells-${look}.png` });
    const { violations } = await new AxeBuilder({ page }).analyze();
    expect(violations.map((v) => v.id)).toEqual([]);
  }
  await cluster.clear();
  await cluster.api.put("/api/v1/vcs", { data: { mode: "open", vcs: {}, cells: null } });
});
