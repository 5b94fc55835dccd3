import config from "../playwright.config";

// Takes the pictures of docs/portal.md: npx playwright test -c pictures
export default { ...config, testDir: ".", outputDir: "../test-results/pictures", reporter: "line" };
