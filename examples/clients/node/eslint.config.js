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
      // Index access is `T | undefined`; `!` says where the bound is known.
      "@typescript-eslint/no-non-null-assertion": "off",
    },
  },
);
