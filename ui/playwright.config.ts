import { defineConfig } from "@playwright/test";

// Tests run against real servers with real agents, in the Chromium of the system. Nothing is downloaded.
export default defineConfig({
  testDir: "tests",
  outputDir: "test-results/traces",
  workers: 2,
  timeout: 180_000,
  expect: { timeout: 30_000 },
  reporter: [["list"], ["./tests/closing-line.ts"]],
  use: {
    ignoreHTTPSErrors: true,
    actionTimeout: 30_000,
    viewport: { width: 1280, height: 860 },
    trace: "retain-on-failure",
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-dev-shm-usage"],
    },
  },
});
