-- Counts the GPUs that jobs ask the pool for (srun --remote-gpu=2) as licences rgpu, so that Slurm starts no more jobs than the pool
-- has GPUs for. For JobSubmitPlugins=lua; where there is a job_submit.lua already, call remote_gpu_licenses from it.

local NAME = "rgpu"

-- The number behind SPANK_RGPU_ASK_GPUS= among the job's control variables; nil: it asks for none.
local function remote_gpu_count(job)
    for _, variable in pairs(job.spank_job_env or {}) do
        local count = string.match(variable, "^SPANK_RGPU_ASK_GPUS=(%d+)$") or
            string.match(variable, "^RGPU_ASK_GPUS=(%d+)$")
        if count and tonumber(count) > 0 then
            return count
        end
    end
    return nil
end

function remote_gpu_licenses(job)
    local count = remote_gpu_count(job)
    local licenses = job.licenses or ""
    if not count or string.find("," .. licenses, "," .. NAME .. "[:,]") or string.find("," .. licenses, "," .. NAME .. "$") then
        return
    end
    job.licenses = (licenses == "" and "" or licenses .. ",") .. NAME .. ":" .. count
end

function slurm_job_submit(job, partitions, uid)
    remote_gpu_licenses(job)
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
