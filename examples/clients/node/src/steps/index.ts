export * as asking from "./asking.js";
export * as pictures from "./pictures.js";
export * as registering from "./registering.js";
export * as watching from "./watching.js";
