// The pictures of docs/portal.md: a cluster of six nodes with three virtual clusters, as one of its users sees it.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type APIRequestContext, type Browser, expect, request, test } from "@playwright/test";
import { type Cluster, PASSWORD, ServerProcess, serve, signIn, watch } from "../tests/cluster";

const IMAGES = "../docs/images";

/** Submits a job as a user and returns its id. */
type Submit = (user: string, job: Record<string, unknown>) => Promise<number>;

/** Adds the users, who choose their own passwords. */
async function addUsers(cluster: Cluster): Promise<Submit> {
  const clients: Record<string, APIRequestContext> = {};
  for (const name of ["ann", "ben", "carla"]) {
    const added = await cluster.api.post("/api/v1/users", { data: { name, password: PASSWORD } });
    expect(added.ok(), await added.text()).toBe(true);
    const headers = { authorization: `Bearer ${(await added.json()).token}` };
    const api = await request.newContext({ baseURL: cluster.url, ignoreHTTPSErrors: true, extraHTTPHeaders: headers });
    const changed = await api.put("/api/v1/me/password", { data: { old: PASSWORD, new: PASSWORD } });
    expect(changed.ok(), await changed.text()).toBe(true);
    clients[name] = api;
  }
  return async (user, job) => {
    const data = { job: { grace_s: 1, ...job, command: ["/bin/sh", "-c", job.command ?? "sleep 3600"] } };
    const answer = await clients[user]!.post("/api/v1/jobs", { data });
    expect(answer.ok(), await answer.text()).toBe(true);
    return (await answer.json()).id;
  };
}

async function fill(cluster: Cluster): Promise<number> {
  const vc = (guaranteed_gpus: number) => ({ guaranteed_gpus, most_borrowed: null, user_cap_gpus: null, max_priority: null, everyone: "member" });
  const vcs = { default: vc(8), language: vc(16), vision: vc(24) };
  const put = await cluster.api.put("/api/v1/vcs", { data: { mode: "quota", vcs, cells: null } });
  expect(put.ok(), await put.text()).toBe(true);
  const submit = await addUsers(cluster);
  const users = ["ann", "ben", "carla"];
  for (let i = 0; i < 12; i += 1) await submit(users[i % 3]!, { name: `sweep-lr-${i}`, command: "sleep 1", gpus: 1 });
  const failed = await submit("ann", { name: "resnet152-large-batch", tenant: "vision", command: "exit 1", gpus: 1 });
  for (let id = 1; id <= failed; id += 1) await cluster.until(id, "completed", "failed");
  const running: [string, Record<string, unknown>][] = [
    ["ann", { name: "resnet50-imagenet", tenant: "vision", gpus: 8, expected_s: 1300 }],
    ["carla", { name: "llama-pretrain", tenant: "language", gpus: 16, expected_s: 36_000 }],
    ["ann", { name: "detr-ablation", tenant: "vision", gpus: 4, expected_s: 7200 }],
    ["ben", { name: "vit-large", tenant: "vision", gpus: 8, expected_s: 620 }],
    ["carla", { name: "tokenizer", gpus: 2, expected_s: 3600 }],
    ["ben", { name: "overnight-sweep", gpus: 3, priority: -1, expected_s: 7200 }],
  ];
  for (const [user, job] of running) await cluster.until(await submit(user, job), "running");
  return submit("ann", { name: "segment-anything", tenant: "vision", gpus: 8, expected_s: 3600 });
}

async function takePictures(browser: Browser, cluster: Cluster, waiting: number): Promise<void> {
  const page = await browser.newPage({ baseURL: cluster.url, ignoreHTTPSErrors: true, viewport: { width: 1120, height: 620 } });
  await watch(page, cluster.url);
  await signIn(page, "ann");
  for (const [name, path] of [["home", "/"], ["cluster", "/cluster"], ["job", `/jobs/${waiting}`]]) {
    await page.goto(path!);
    await expect(page.locator("nav.side")).toBeVisible();
    await expect(page.locator(".loading, .checking")).toHaveCount(0);
    if (name === "job") await expect(page.locator(".why .eta")).toBeVisible();
    await page.waitForTimeout(1500);
    await page.screenshot({ path: `${IMAGES}/portal-${name}.png` });
  }
}

test("the pictures of the page", async ({ browser }) => {
  const folder = mkdtempSync(join(tmpdir(), "dovetail-pictures-"));
  const { cluster, server } = await serve(["server"], join(folder, "server"));
  const grpc = /agents\b.*?:(\d+)/.exec(server.output)![1]!;
  const agent = (i: number) =>
    ServerProcess.start(
      ["agent", "--server", `127.0.0.1:${grpc}`, "--token-file", join(folder, "server/join-token"), "--name", `gpu-0${i}`]
        .concat(["--rack", i < 3 ? "A" : "B", "--virtual-gpus", "8", "--data", join(folder, `gpu-0${i}`)]),
    );
  const agents = [0, 1, 2, 3, 4, 5].map(agent);
  try {
    await cluster.hasNodes(6);
    await takePictures(browser, cluster, await fill(cluster));
  } finally {
    await cluster.clear();
    for (const agent of agents) await agent.end();
    await server.end();
    rmSync(folder, { recursive: true, force: true });
  }
});
