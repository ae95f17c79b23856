#!/usr/bin/env node
// The command `mizzen`: runs the binary of the package and ends as it ends.
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { binaryPath } from '../index.js';

const child = spawn(binaryPath(), process.argv.slice(2), { stdio: 'inherit' });
// Ctrl-C reaches the whole process group, so this process only waits; SIGTERM reaches this process alone.
process.on('SIGINT', () => {});
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.on('error', (error) => {
  console.error(`cannot run mizzen: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
