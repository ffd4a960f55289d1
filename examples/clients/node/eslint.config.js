import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(
  { ignores: ["dist/"] },
  tseslint.configs.strictTypeChecked,
  tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: { allowDefaultProject: ["eslint.config.js"] } } },
    rules: {
      // Numbers and bigints are what messages are made of.
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // node:test runs what it is given; there is nothing to await.
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", package: "node:test", name: ["suite", "test"] }] },
      ],
      // Index access is `T | undefined`; `!` says where the bound is known.
      "@typescript-eslint/no-non-null-assertion": "off",
    },
  },
);
