// What users do, from signing in to stopping a job, against a real scheduler with real nodes.

import { expect, signIn, test } from "./cluster";

test("a wrong password is refused, and the right one signs in", async ({ page }) => {
  await page.goto("/jobs");
  await page.getByLabel("Name").fill("admin");
  await page.getByLabel("Password").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toBeVisible();
  await page.getByLabel("Password").fill("correct horse battery staple");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { name: "Jobs", exact: true })).toBeVisible();
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByRole("button", { name: "Sign in" })).toBeVisible();
});

test("a job is submitted, runs, prints a log, makes another wait, and is stopped", async ({ page, cluster }) => {
  await cluster.clear();
  await signIn(page);
  await page.getByRole("link", { name: "Submit", exact: true }).click();
  await page.getByLabel("Name").fill("first");
  await page.getByLabel("Command").fill('for i in $(seq 1 40); do echo "step $i of 40"; done; echo needle-7; sleep 600');
  await page.getByLabel("GPUs", { exact: true }).fill("8");
  await expect(page.getByText("Would start now.")).toBeVisible();
  await page.getByRole("button", { name: "Submit" }).click();

  await expect(page.getByRole("heading", { name: /first/ })).toBeVisible();
  await expect(page.locator(".head .tag")).toHaveText("running");
  await expect(page.getByRole("heading", { name: "Placement", exact: true })).toBeVisible();

  await page.getByRole("link", { name: "Logs" }).click();
  const log = page.getByRole("region", { name: "Log" });
  await expect(log).toContainText("needle-7");
  await page.getByLabel("Search the log").fill("needle");
  await expect(log.locator("mark").first()).toHaveText("needle");

  await page.goto("/submit");
  await page.getByLabel("Name").fill("second");
  await page.getByLabel("Command").fill("sleep 1");
  await page.getByLabel("GPUs", { exact: true }).fill("2");
  await expect(page.getByText("Would wait.")).toBeVisible();
  await page.getByRole("button", { name: "Submit" }).click();
  await expect(page.getByRole("heading", { name: /second/ })).toBeVisible();
  await expect(page.locator(".head .tag")).toHaveText("queued");
  const why = page.locator(".panel.why");
  await expect(why.getByRole("heading", { name: "Why this job is waiting" })).toBeVisible();
  await expect(why.locator(".reasons li").first()).toBeVisible();
  await page.getByRole("link", { name: "Queue" }).click();
  await expect(page.getByRole("link", { name: /second/ })).toBeVisible();

  // When the first job is stopped, the second one starts.
  await page.getByRole("link", { name: /second/ }).click();
  const jobs = await (await cluster.api.get("/api/v1/jobs?state=running")).json();
  const first = jobs.jobs[0].id;
  await page.goto(`/jobs/${first}`);
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.getByRole("dialog")).toContainText(`Stop job ${first}?`);
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toBeHidden();
  await expect(page.locator(".head .tag")).toHaveText("running");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Stop job" }).click();
  await expect(page.locator(".head .tag")).toHaveText("cancelled");
  await page.goto(`/jobs/${first + 1}`);
  await expect(page.locator(".head .tag")).toHaveText("completed");
});

test("the whole log is searched, and a match is shown in its place", async ({ page, cluster }) => {
  const id = await cluster.submit({ name: "haystack", command: "seq 1 300000; echo needle-7; seq 1 300000", gpus: 1 });
  await cluster.until(id, "completed");
  await signIn(page);
  await page.goto(`/jobs/${id}?tab=logs`);
  await page.getByLabel("Search the log").fill("needle");
  await page.getByRole("button", { name: "Search", exact: true }).click();
  await expect(page.locator(".found li")).toHaveCount(1);
  await expect(page.locator(".found li")).toContainText("needle-7");
  await page.locator(".found li button").click();
  await expect(page.getByRole("region", { name: "Log" }).locator("mark")).toHaveText("needle");
});

test("the estimated start is shown, or why there is none", async ({ page, cluster }) => {
  await cluster.clear();
  const first = await cluster.submit({ name: "first", command: "sleep 600", gpus: 8, expected_s: 600 });
  await cluster.until(first, "running");
  const second = await cluster.submit({ name: "second", command: "sleep 600", gpus: 8, expected_s: 600 });
  await signIn(page);
  await page.goto(`/jobs/${second}`);
  await expect(page.locator(".why .eta").first()).toContainText(/Expected to start in|No estimate/);
  await cluster.clear();
});

test("alternatives that would start now are offered and resubmitted", async ({ page, cluster }) => {
  await cluster.clear();
  const first = await cluster.submit({ name: "first", command: "sleep 600", gpus: 6 });
  await cluster.until(first, "running");
  const second = await cluster.submit({ name: "second", command: "sleep 600", gpus: 4 });
  await signIn(page);
  await page.goto(`/jobs/${second}`);
  const option = page.locator(".alternatives li").filter({ hasText: "2 GPUs" });
  await option.getByRole("link", { name: "Resubmit with 2 GPUs" }).click();
  await expect(page.getByLabel("GPUs", { exact: true })).toHaveValue("2");
  await expect(page.getByText("Would start now.")).toBeVisible();
  await page.getByRole("button", { name: "Submit" }).click();
  await expect(page.locator(".head .tag")).toHaveText("running");
  await cluster.clear();
});

test("a failed job shows its result and is resubmitted", async ({ page, cluster }) => {
  await cluster.clear();
  const id = await cluster.submit({ name: "broken", command: "echo out of luck >&2; exit 3", gpus: 1, labels: { team: "red" } });
  await cluster.until(id, "failed");
  await signIn(page);
  await page.goto(`/jobs/${id}`);
  await expect(page.getByRole("heading", { name: "Result" })).toBeVisible();
  await expect(page.locator(".panel.failed")).toContainText("out of luck");
  await page.getByRole("link", { name: "Resubmit" }).first().click();
  await expect(page.getByLabel("Name")).toHaveValue("broken");
  await expect(page.getByLabel("Command")).toHaveValue(/out of luck/);
});

test("the list is filtered and sorted, and several jobs are stopped at once", async ({ page, cluster }) => {
  await cluster.clear();
  const ids = [];
  for (const name of ["bulk-a", "bulk-b", "other"]) ids.push(await cluster.submit({ name, command: "sleep 600", gpus: 1 }));
  for (const id of ids) await cluster.until(id, "running");
  await signIn(page);
  await page.goto("/jobs?state=unfinished");
  await page.getByLabel("Search", { exact: true }).fill("bulk");
  await expect(page).toHaveURL(/q=bulk/);
  const table = page.getByRole("region", { name: "Jobs" });
  await expect(table.getByRole("row")).toHaveCount(3);
  await table.getByRole("button", { name: "GPUs" }).click();
  await expect(page).toHaveURL(/sort=-gpus/);
  await page.getByLabel(/Select all jobs/).check();
  await page.getByRole("group", { name: "Selected jobs" }).getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Stop 2 jobs" }).click();
  for (const id of ids.slice(0, 2)) await cluster.until(id, "cancelled");
  expect((await cluster.job(ids[2]!)).state).toBe("running");
  await expect(page.getByText("No matching jobs")).toBeVisible();
  await page.goBack();
  await cluster.clear();
});

test("names and output of jobs are shown as text", async ({ page, cluster }) => {
  const evil = `<img src=x onerror="alert('name')"><script>alert(1)</script>`;
  const id = await cluster.submit({ name: evil, command: `printf '%s\\n' '<b>bold</b>' '<script>alert(2)</script>' '<img src=x onerror=alert(3)>'`, gpus: 1, labels: { "<i>k</i>": "<u>v</u>" } });
  await cluster.until(id, "completed");
  await signIn(page);
  await page.goto("/jobs");
  await expect(page.getByRole("link", { name: evil })).toBeVisible();
  await page.goto(`/jobs/${id}?tab=logs`);
  await expect(page.getByRole("heading", { level: 1 })).toContainText(evil);
  await expect(page.getByRole("region", { name: "Log" })).toContainText("<img src=x onerror=alert(3)>");
  await page.goto(`/jobs/${id}?tab=file`);
  await expect(page.locator("pre.code")).toContainText("<script>");
  expect(await page.locator("main img, main script, main b:text('bold'), main u").count()).toBe(0);
});
