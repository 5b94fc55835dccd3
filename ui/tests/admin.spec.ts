// Administration.

import { PASSWORD, expect, signIn, test, watch } from "./cluster";

test("an administrator creates a user, who signs in and changes the password", async ({ page, browser, cluster }) => {
  await signIn(page);
  await page.goto("/admin");
  await page.getByRole("button", { name: "New user" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("ann");
  await dialog.getByLabel("Mail").fill("ann@example.org");
  await dialog.getByRole("button", { name: "Create user" }).click();
  const secret = (await dialog.locator(".secret").textContent()) ?? "";
  const password = /password: (.*)/.exec(secret)![1]!.trim();
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByRole("region", { name: "Users" })).toContainText("ann");

  const other = await browser.newContext({ ignoreHTTPSErrors: true, baseURL: cluster.url });
  const userPage = await other.newPage();
  const problems = await watch(userPage, cluster.url);
  await signIn(userPage, "ann", password);
  await expect(userPage.getByRole("link", { name: "Administration" })).toBeHidden();
  await userPage.goto("/me");
  await userPage.getByLabel("Current password").fill(password);
  await userPage.getByLabel("New password", { exact: true }).fill(PASSWORD);
  await userPage.getByLabel("Repeat new password").fill(PASSWORD);
  await userPage.getByRole("button", { name: "Change password" }).click();
  await expect(userPage.getByText("Password changed.")).toBeVisible();
  await userPage.getByRole("button", { name: "New token" }).click();
  await userPage.getByRole("dialog").getByLabel("Name").fill("laptop");
  await userPage.getByRole("button", { name: "Create token" }).click();
  await expect(userPage.locator(".secret")).toBeVisible();
  await userPage.getByRole("button", { name: "Done" }).click();
  await expect(userPage.getByRole("region", { name: "Tokens" })).toContainText("laptop");
  await other.close();
  expect(problems).toEqual([]);
});

test("a virtual cluster is created, edited with a preview, and removed", async ({ page, cluster }) => {
  await cluster.clear();
  await signIn(page);
  await page.goto("/vcs");
  await page.getByRole("button", { name: "New virtual cluster" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("vision");
  await dialog.getByLabel("Guaranteed GPUs").fill("4");
  await expect(dialog.locator(".diff-list")).toContainText("vision");
  await dialog.getByRole("button", { name: "Create" }).click();
  await expect(dialog).toBeHidden();
  const panel = page.locator(".vc-grid .panel").filter({ hasText: "vision" });
  await expect(panel).toContainText("0 of 4 guaranteed GPUs in use");

  const id = await cluster.submit({ name: "seeing", tenant: "vision", command: "sleep 600", gpus: 4 });
  await cluster.until(id, "running");
  await expect(panel).toContainText("4 of 4 guaranteed GPUs in use");
  await page.getByRole("button", { name: "Edit vision" }).click();
  await dialog.getByLabel("Guaranteed GPUs").fill("6");
  await expect(dialog.locator(".diff-list del")).toHaveText("4");
  await expect(dialog.locator(".diff-list ins")).toHaveText("6");
  await dialog.getByRole("button", { name: "Apply" }).click();
  await expect(panel).toContainText("4 of 6 guaranteed GPUs in use");
  await page.goto("/admin?tab=audit");
  await expect(page.getByRole("region", { name: "Changes" })).toContainText("vision");
  await cluster.clear();
  await page.goto("/vcs");
  await page.getByRole("button", { name: "Remove vision" }).click();
  await expect(dialog.locator(".diff-list")).toContainText("removed");
  await dialog.getByRole("button", { name: "Remove", exact: true }).click();
  await expect(panel).toBeHidden();
  await cluster.api.put("/api/v1/vcs", { data: { mode: "open", vcs: {}, cells: null } });
});

test("a node is drained and resumed", async ({ page, cluster }) => {
  await signIn(page);
  await page.goto("/admin?tab=nodes");
  const rows = page.getByRole("region", { name: "Nodes" }).locator("tbody tr");
  await expect(rows).toHaveCount(2);
  await rows.first().getByRole("button", { name: /Drain/ }).click();
  await page.getByLabel("Reason").fill("a new fan");
  await page.getByRole("button", { name: "Drain", exact: true }).click();
  await expect(rows.first()).toContainText("draining");
  await expect(rows.first()).toContainText("a new fan");
  // The other node has four GPUs, so eight cannot start now.
  const id = await cluster.submit({ name: "too-wide", command: "true", gpus: 8 });
  await page.goto(`/jobs/${id}`);
  await expect(page.locator(".panel.why .sentence")).toBeVisible();
  await page.goto("/admin?tab=nodes");
  await rows.first().getByRole("button", { name: /Resume/ }).click();
  await expect(rows.first().locator(".tag")).toHaveText("up");
  await cluster.until(id, "completed");
});

test("the policy is changed, and scheduling is paused and resumed", async ({ page, cluster }) => {
  await signIn(page);
  await page.goto("/admin?tab=policy");
  await page.getByRole("button", { name: "Pause scheduling" }).click();
  await expect(page.locator(".facts .tag")).toHaveText("paused");
  await page.getByRole("button", { name: "Resume scheduling" }).click();
  await expect(page.locator(".facts .tag")).toHaveText("active");
  const before = (await (await cluster.api.get("/api/v1/cluster")).json()).policy;
  const [name, parameters] = before.split(":");
  await page.getByLabel("Policy", { exact: true }).selectOption("srtf");
  await page.getByRole("button", { name: "Change policy" }).click();
  await expect(page.locator(".facts")).toContainText("srtf");
  await page.getByLabel("Policy", { exact: true }).selectOption(name);
  await page.getByLabel("Parameters").fill(parameters ?? "");
  await page.getByRole("button", { name: "Change policy" }).click();
  await expect.poll(async () => (await (await cluster.api.get("/api/v1/cluster")).json()).policy).toBe(before);
});
